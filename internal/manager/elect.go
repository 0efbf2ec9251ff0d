package manager

import (
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/leader"
)

// elect makes the fenced lock of the election; nil where there is none.
func elect(cfg *config.Config, rc *rest.Config, namespace string) (*leader.Fence, error) {
	if !*cfg.LeaderElection.Enabled {
		return nil, nil
	}
	return leader.New(rc, orElse(cfg.LeaderElection.Namespace, namespace), cfg.LeaderElection.ID, nil)
}

// fenced has the manager elect by the fence's lock, with the times that the fence reckons with.
func fenced(o *ctrl.Options, cfg *config.Config, f *leader.Fence) {
	o.LeaderElection = true
	o.LeaderElectionID = cfg.LeaderElection.ID
	o.LeaderElectionResourceLockInterface = f
	o.LeaderElectionReleaseOnCancel = true
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = ptr.To(leader.LeaseDuration), ptr.To(leader.RenewDeadline), ptr.To(leader.Tick)
}
