//go:build !chaos

package leader

import "time"

// unit makes the times those that are controller-runtime's defaults (pkg/manager/internal.go).
const unit = time.Second
