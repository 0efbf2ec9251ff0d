package leader

// The times of the election. The fence reckons with them, so the manager is given the same.
const (
	// LeaseDuration is how long the others wait after the last renewal that they saw before one of them leads.
	LeaseDuration = 15 * unit
	// RenewDeadline is how long a leader tries to renew before it gives up, and the age of the last renewal from which on
	// the fence refuses writes. What lies between it and LeaseDuration is for the request in flight: the API server may
	// carry out a write some seconds after it was sent, and by then nobody else may lead. A longer limit would leave it no
	// time; a shorter one would refuse writes of a leader whose elector is still content.
	RenewDeadline = 10 * unit
	// RetryPeriod is the time between two renewals, between two looks at another's lease that shows no change, and
	// until what failed is tried again.
	RetryPeriod = 2 * unit
	// Tick is how often the elector is to run. Most of its rounds send nothing: the fence answers from what it last
	// read or wrote until RetryPeriod has passed, or its watch has shown a change. A successor then acts within two
	// ticks of a release, and not within two of client-go's own rounds, which may be nine seconds.
	Tick = unit / 10
)
