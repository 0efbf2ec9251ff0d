package reporter

import "time"

// messagePeriod bounds how often a message alone is written anew, for an endpoint whose every answer differs.
const messagePeriod = 10 * time.Second

// condition is a v1 NodeCondition. Times have the API's precision, which is a second.
type condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	LastHeartbeatTime  time.Time `json:"lastHeartbeatTime"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message"`
}

// next is the condition that an observation makes of the present one, nil where there is none. The transition time moves with
// the status alone.
func next(present *condition, conditionType string, o observation, now time.Time) condition {
	now = now.UTC().Truncate(time.Second)
	c := condition{Type: conditionType, Status: o.status, LastHeartbeatTime: now, LastTransitionTime: now, Reason: o.reason, Message: o.message}
	if present != nil && present.Status == o.status && !present.LastTransitionTime.IsZero() {
		c.LastTransitionTime = present.LastTransitionTime
	}
	return c
}

// due reports whether an observation is to be written over the present condition, nil where there is none, which was written at
// a time. failing is how long the endpoint has failed.
func due(c Config, present *condition, written time.Time, o observation, failing time.Duration, now time.Time) bool {
	if present == nil {
		return true
	}
	age := now.Sub(written)
	overdue := func(period time.Duration) bool { return age < 0 || age >= period } // a time to come is another clock's
	switch {
	case present.Status == statusTrue && o.status == statusFalse:
		return failing >= c.Grace
	case present.Status != o.status, present.Reason != o.reason:
		return true
	case present.Message != o.message:
		return overdue(min(messagePeriod, c.Heartbeat))
	}
	return overdue(c.Heartbeat)
}
