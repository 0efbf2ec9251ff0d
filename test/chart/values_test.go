package chart

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

func TestPlaceAndNetworkOfTheController(t *testing.T) {
	d := deployment(t, render(t, `
controller:
  hostNetwork: true
  dnsConfig: {options: [{name: ndots, value: "1"}]}
  hostAliases: [{ip: 192.0.2.1, hostnames: [registry.example]}]
  runtimeClassName: gvisor
  nodeSelector: {pool: system}
  envFrom: [{secretRef: {name: proxy}}]
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
`))
	pod := d.Spec.Template.Spec
	if !pod.HostNetwork || pod.DNSPolicy != corev1.DNSClusterFirstWithHostNet || len(pod.DNSConfig.Options) != 1 {
		t.Errorf("host network %v, DNS %s %v", pod.HostNetwork, pod.DNSPolicy, pod.DNSConfig)
	}
	if !maps.Equal(pod.NodeSelector, map[string]string{corev1.LabelOSStable: "linux", "pool": "system"}) {
		t.Errorf("node selector %v", pod.NodeSelector)
	}
	if len(pod.HostAliases) != 1 || *pod.RuntimeClassName != "gvisor" || pod.Containers[0].EnvFrom[0].SecretRef.Name != "proxy" {
		t.Errorf("aliases %v, runtime class %v, environment %v", pod.HostAliases, pod.RuntimeClassName, pod.Containers[0].EnvFrom)
	}
	if d.Spec.Strategy.RollingUpdate == nil || d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue() != 0 {
		t.Errorf("strategy %+v", d.Spec.Strategy)
	}
	for values, want := range map[string]appsv1.DeploymentStrategy{
		"hostNetwork: true":                             {RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: ptr.To(intstr.FromInt32(1))}},
		"hostNetwork: true, strategy: {type: Recreate}": {Type: appsv1.RecreateDeploymentStrategyType},
		"hostNetwork: false":                            {},
	} {
		if got := deployment(t, render(t, "controller: {"+values+"}")).Spec.Strategy; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: strategy %+v, want %+v", values, got, want)
		}
	}
	d = deployment(t, render(t, "controller: {dnsPolicy: Default}"))
	if pod := d.Spec.Template.Spec; pod.DNSPolicy != corev1.DNSDefault || pod.HostNetwork || pod.RuntimeClassName != nil {
		t.Errorf("pod %+v", pod)
	}
}

// Where the platform gives pods their user, none of ours names one; the controller does as the configuration says for the workers.
func TestAdaptSecurityContext(t *testing.T) {
	openshift := []string{"--api-versions", "security.openshift.io/v1"}
	for name, test := range map[string]struct {
		values   string
		more     []string
		platform bool
	}{
		"elsewhere":             {},
		"auto on OpenShift":     {more: openshift, platform: true},
		"disabled on OpenShift": {values: "adaptSecurityContext: disabled", more: openshift},
		"forced":                {values: "adaptSecurityContext: force", platform: true},
		"by global":             {values: "global: {compatibility: {openshift: {adaptSecurityContext: force}}}", platform: true},
		"global wins":           {values: "adaptSecurityContext: force\nglobal: {compatibility: {openshift: {adaptSecurityContext: disabled}}}"},
	} {
		t.Run(name, func(t *testing.T) {
			found := render(t, test.values, test.more...)
			controller := deployment(t, found).Spec.Template.Spec.SecurityContext
			tested := get[corev1.Pod](t, found, "Pod kube-node-ready/kube-node-ready-test").Spec.SecurityContext
			for who, s := range map[string]*corev1.PodSecurityContext{"controller": controller, "test": tested} {
				if (s.RunAsUser == nil) != test.platform || (s.RunAsGroup == nil) != test.platform || !*s.RunAsNonRoot {
					t.Errorf("%s: %+v", who, s)
				}
			}
			c, err := config.Parse([]byte(file(t, found)), "rendered")
			if err != nil || *c.Worker.FixedUser == test.platform {
				t.Errorf("the workers' user is fixed: %v (%v)", *c.Worker.FixedUser, err)
			}
		})
	}
}

func TestMonitorsOfNothingAreRefused(t *testing.T) {
	const off = "controller: {config: {metrics: {enabled: false}}}\n"
	for values, want := range map[string]string{
		"serviceMonitor: {enabled: true}\nservice: {enabled: false}":                                             "set service.enabled=true, or use podMonitor.enabled",
		off + "serviceMonitor: {enabled: true}":                                                                  "serviceMonitor.enabled is true, but controller.config.metrics.enabled is false",
		off + "podMonitor: {enabled: true}":                                                                      "podMonitor.enabled is true, but controller.config.metrics.enabled is false",
		off + "prometheusRule: {enabled: true}":                                                                  "prometheusRule.enabled is true, but controller.config.metrics.enabled is false",
		"controller: {replicas: 1, strategy: {type: RollingUpdate}, config: {leaderElection: {enabled: false}}}": "set it to Recreate",
	} {
		if _, failure := template(t, values); !strings.Contains(failure, want) {
			t.Errorf("%s: %q, want %q", values, failure, want)
		}
	}
	render(t, "podMonitor: {enabled: true}\nservice: {enabled: false}")
}

// What the controller refuses at its start the chart refuses before anything is changed.
func TestTheChartRefusesWhatTheControllerRefuses(t *testing.T) {
	for _, bad := range []string{
		"reconciliation: {maxRetries: 0}",
		"reconciliation: {maxRetries: 5000}",
		"reconciliation: {retryBackoff: ''}",
		"reconciliation: {initialBackoffSeconds: -1}",
		"reconciliation: {initialBackoffSeconds: 60}",
		"reconciliation: {intervalSeconds: 0}",
		"reconciliation: {maxConcurrentVerifications: -1}",
		"reconciliation: {verificationDeadlineSeconds: -1}",
		"nodeManagement: {taints: [{key: a}]}",
		"nodeManagement: {taints: [{effect: NoSchedule}]}",
		"nodeManagement: {taints: [{key: 'a b', effect: NoSchedule}]}",
		"nodeManagement: {taints: [{key: a, value: 'b c', effect: NoSchedule}]}",
		"nodeManagement: {taints: [{key: a, effect: Never}]}",
		"nodeManagement: {taints: []}",
		"nodeManagement: {taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]}",
		"nodeManagement: {taints: [{key: karpenter.sh/unregistered, effect: NoExecute}]}",
		"nodeManagement: {verifiedLabel: {key: a/b/c}}",
		"nodeManagement: {verifiedLabel: {value: '-'}}",
		"nodeManagement: {presets: [flannel]}",
		"nodeManagement: {prerequisites: {csiNodes: [{allocatable: true}]}}",
		"nodeManagement: {prerequisites: {csiNodes: [{driver: Not_A_Driver}]}}",
		"nodeManagement: {prerequisites: {pods: [{namespace: a}]}}",
		"nodeManagement: {prerequisites: {daemonSets: [{namespace: a}]}}",
		"nodeManagement: {prerequisites: {daemonSets: [{namespace: a, name: B}]}}",
		"nodeManagement: {prerequisites: {conditions: [{status: 'True'}]}}",
		"nodeManagement: {prerequisites: {resources: [{kind: A, condition: Ready}]}}",
		"nodeManagement: {remediation: {maxInFlight: 0}}",
		"nodeManagement: {remediation: {maxDeletionsPerHour: -1}}",
		"nodeManagement: {remediation: {maxUnhealthy: a few}}",
		"nodeManagement: {remediation: {maxUnhealthy: -1}}",
		"nodeManagement: {remediation: {window: an hour}}",
		"nodeManagement: {remediation: {action: reboot}}",
		"nodeManagement: {remediation: {actions: [{delete: {}}]}}",
		"nodeManagement: {remediation: {condition: {type: 'a b'}}}",
		"nodeManagement: {remediation: {condition: {status: Maybe}}}",
		"nodeManagement: {remediation: {condition: {reason: Mine}}}",
		"nodeManagement: {reverify: {interval: daily}}",
		"leaderElection: {id: 'A b'}",
		"leaderElection: {namespace: a.b}",
		"metrics: {port: 0}",
		"metrics: {port: 70000}",
		"metrics: {perNode: some}",
		"metrics: {port: 8081}",
		"health: {port: 8080}",
		"logging: {level: verbose}",
		"logging: {level: ''}",
		"logging: {format: xml}",
		"kubernetes: {qps: -1}",
		"kubernetes: {burst: -5, qps: 1}",
		"kubernetes: {burst: 5}",
		"rules: {enabled: false, takeOver: true}",
		"metrics: {certificateDir: /certs}",
		"rules: {enabled: false, staleAfter: 5m}",
		"rules: {staleAfter: a while}",
		"rules: {enabled: false, maxClosedPercent: 10}",
		"rules: {maxClosedPercent: 101}",
		"worker: {checkTimeoutSeconds: 0}",
		"worker: {timeoutSeconds: 100000}",
		"worker: {startTimeoutSeconds: 0}",
		"worker: {keepFailedSeconds: -1}",
		"worker: {namespace: A}",
		"worker: {serviceAccountName: A_b}",
		"worker: {priorityClassName: ''}",
		"worker: {scheduling: random}",
		"worker: {image: {pullPolicy: Sometimes}}",
		"worker: {image: {tag: 'a b'}}",
		"worker: {image: {repository: 'A b'}}",
		"worker: {image: {digest: latest}}",
		"worker: {checks: []}",
		"worker: {checks: [{type: dns}]}",
		"worker: {checks: [{name: a}]}",
		"worker: {checks: [{name: a, type: ping}]}",
		"worker: {checks: [{name: a, type: dns, severity: fatal}]}",
		"worker: {checks: [{name: a, type: dns, attempts: 0}]}",
		"worker: {checks: [{name: a, type: http, http: {url: 'http://a', expectStatus: [99]}}]}",
		"worker: {checks: [{name: a, type: kubernetesAPI}, {name: a, type: kubernetesAPI}]}",
		"profiles: [{name: a}]",
		"profiles: [{nodeSelector: {matchLabels: {a: b}}}]",
		"profiles: [{name: A, nodeSelector: {matchLabels: {a: b}}}]",
		"profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}}, {name: a, nodeSelector: {matchLabels: {a: c}}}]",
		"profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, verificationDeadlineSeconds: -1}]",
		"nodeManagement: {surprise: true}",
		"metrics: {port: '8080'}",
	} {
		t.Run(bad, func(t *testing.T) {
			t.Parallel()
			if _, err := config.Parse([]byte(bad), "config"); err == nil {
				t.Fatal("the controller takes it")
			}
			if _, failure := template(t, "controller:\n  config:\n    "+bad+"\n"); failure == "" {
				t.Error("the chart takes it")
			}
		})
	}
}

// And it takes what the controller takes: names with prefixes and at their greatest length, zeros and empties that have a meaning.
func TestTheChartTakesWhatTheControllerTakes(t *testing.T) {
	for _, good := range []string{
		"nodeManagement: {taints: [{key: " + strings.Repeat("a", 200) + ".example/" + strings.Repeat("b", 63) + ", value: '', effect: PreferNoSchedule}]}",
		"nodeManagement: {verifiedLabel: {value: ''}}",
		"nodeManagement: {prerequisites: {daemonSets: [{anyOf: [{namespace: a, name: b}, {namespace: c, name: d.e}]}]}}",
		"nodeManagement: {prerequisites: {conditions: [{type: example.com/Ready, status: 'True'}], resources: [{apiVersion: a.b/v1, kind: C, condition: Ready}]}}",
		"nodeManagement: {remediation: {maxUnhealthy: 0, maxUnhealthyPerZone: 0%, maxDeletionsPerHour: 0}}",
		"nodeManagement: {deleteFailedNodes: true, remediation: {action: condition, condition: {type: example.com/Repair, status: Unknown}}}",
		"reconciliation: {exhaustedRetrySeconds: -1, maxConcurrentVerifications: 0}",
		"kubernetes: {qps: 0.5}",
		"worker: {keepFailedSeconds: 0, checks: [{name: a, type: dns, severity: '', dns: {name: example.com}}]}",
		"worker: {checks: []}\n    nodeManagement: {prerequisites: {nodeReady: true}}",
		"profiles: [{name: gpu, nodeSelector: {matchExpressions: [{key: gpu, operator: Exists}]}, verificationDeadlineSeconds: 0}]",
		"metrics: {enabled: false, port: 8081}",
	} {
		t.Run(good, func(t *testing.T) {
			t.Parallel()
			values := "controller:\n  config:\n    " + good + "\n"
			if _, failure := template(t, values); failure != "" {
				t.Error(failure)
			}
			parsed(t, values)
		})
	}
}
