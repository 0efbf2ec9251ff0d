package marks

import "time"

// Flapping is a boot ID that returned: two machines report under the node's name.
type Flapping struct {
	// BootIDs are the one that returned and the one before it.
	BootIDs []string `json:"bootIDs"`
	// Time is when a boot ID was seen to return, on the controller's clock. It is renewed every few minutes while that
	// lasts.
	Time time.Time `json:"time"`
}

// bootIDs are those of Flapping, which must be two.
const bootIDs = 2
