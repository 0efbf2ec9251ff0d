//go:build chaos

package leader

import "time"

// unit shortens the election to three seconds, for test/chaos, where many leaders are lost within a minute.
const unit = 200 * time.Millisecond
