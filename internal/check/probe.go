package check

import "context"

// Probe makes one attempt at a check. It ends soon after the context does, and then says
// what it was waiting for.
type Probe func(ctx context.Context) Finding
