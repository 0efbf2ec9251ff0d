package check

import "context"

// Func makes one attempt at a check. It ends soon after the context does, and then says what it was
// waiting for.
type Func func(ctx context.Context) Finding
