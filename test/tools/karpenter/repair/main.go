// Command repair is Karpenter with its kwok provider and one more repair policy. A cloud provider defines which node
// conditions Karpenter repairs, and after how long. The kwok provider itself defines only Ready.
//
//	REPAIR_CONDITION=node-ready/RemediationRequired REPAIR_TOLERATION=5s FEATURE_GATES=NodeRepair=true karpenter-repair
package main

import (
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

// provider is kwok's with one more repair policy.
type provider struct {
	*kwok.CloudProvider
	policy cloudprovider.RepairPolicy
}

// RepairPolicies are kwok's and the one from the environment.
func (p *provider) RepairPolicies() []cloudprovider.RepairPolicy {
	return append(p.CloudProvider.RepairPolicies(), p.policy)
}

func main() {
	ctx, op := operator.NewOperator()
	fail := func(err error, message string) {
		log.FromContext(ctx).Error(err, message)
		os.Exit(1)
	}
	toleration, err := time.ParseDuration(os.Getenv("REPAIR_TOLERATION"))
	if err != nil || os.Getenv("REPAIR_CONDITION") == "" {
		fail(err, "set REPAIR_CONDITION to a type of node condition and REPAIR_TOLERATION to a duration such as 5s")
	}
	instanceTypes, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		fail(err, "instance types")
	}
	undecorated := &provider{kwok.NewCloudProvider(ctx, op.GetClient(), instanceTypes), cloudprovider.RepairPolicy{
		ConditionType:      corev1.NodeConditionType(os.Getenv("REPAIR_CONDITION")),
		ConditionStatus:    corev1.ConditionTrue,
		TolerationDuration: toleration,
	}}
	decorated := overlay.Decorate(undecorated, op.GetClient(), op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, op.GetClient(), decorated)
	op.WithControllers(ctx, controllers.NewControllers(ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder,
		decorated, undecorated, cluster, op.InstanceTypeStore)...).Start(ctx)
}
