package config

import (
	"reflect"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
)

// What presets and the file's own settings add up to, written out: a pair of files that mean the same.
func TestPresetsStandFor(t *testing.T) {
	const (
		builtIns   = "{name: dns, type: dns, dns: {protocols: [udp, tcp]}}, {name: api, type: kubernetesAPI, kubernetesAPI: {via: [address]}}, {name: network, type: tcp}, {name: service-discovery, type: serviceDiscovery, dependsOn: [dns, api]}, {name: dns-endpoints, type: dns, severity: warning, dns: {resolver: endpoints, sample: 3, protocols: [udp, tcp]}}, {name: clock, type: clock, severity: warning, clock: {maxSkewSeconds: 30}}"
		podNetwork = "{name: pod-network, type: peers, attempts: 3, peers: {namespace: kube-system, service: kube-dns, selector: k8s-app=kube-dns, port: 53, sample: 3, failPercent: 100}}"
		cilium     = "{namespace: kube-system, name: cilium}"
		ebs        = "{namespace: kube-system, name: ebs-csi-node, provides: {csiNodes: [{driver: ebs.csi.aws.com, allocatable: true}]}}"
		gpu        = "{namespace: gpu-operator, name: nvidia-device-plugin-daemonset, provides: {allocatable: {nvidia.com/gpu: 1}}}, {namespace: gpu-operator, name: nvidia-operator-validator}"
		selector   = "name: p, nodeSelector: {matchLabels: {a: b}}"
	)
	for name, test := range map[string]struct{ presets, written string }{
		"none": {"nodeManagement: {presets: []}", ""},
		"for all nodes": {"nodeManagement: {presets: [ebs-csi, cilium]}",
			"worker: {checks: [" + builtIns + ", " + podNetwork + "]}\nnodeManagement: {prerequisites: {daemonSets: [" + cilium + ", " + ebs + "]}}"},
		"without checks": {"nodeManagement: {presets: [gpu-nvidia]}", "nodeManagement: {prerequisites: {daemonSets: [" + gpu + "]}}"},
		"the same check twice": {"nodeManagement: {presets: [aws-vpc-cni, cilium]}",
			"worker: {checks: [" + builtIns + ", " + podNetwork + "]}\nnodeManagement: {prerequisites: {daemonSets: [" + cilium + ", {namespace: kube-system, name: aws-node}]}}"},
		"beside own prerequisites": {`nodeManagement: {presets: [ebs-csi], prerequisites: {nodeReady: true, daemonSets: [{namespace: kube-system, name: ebs-csi-node, provides: {csiNodes: [{driver: a.b}, {driver: ebs.csi.aws.com}],
			allocatable: {a/b: 3}}}, {namespace: a, name: b}]}}`,
			"nodeManagement: {prerequisites: {nodeReady: true, daemonSets: [{namespace: kube-system, name: ebs-csi-node, provides: {csiNodes: [{driver: a.b}, {driver: ebs.csi.aws.com, allocatable: true}], allocatable: {a/b: 3}}}, {namespace: a, name: b}]}}"},
		"beside auto": {"nodeManagement: {presets: [ebs-csi], prerequisites: {daemonSets: {mode: auto, exclude: [{namespace: a, name: b}]}}}",
			"nodeManagement: {prerequisites: {daemonSets: {mode: auto, exclude: [{namespace: a, name: b}], named: [" + ebs + "]}}}"},
		"beside own checks": {"worker: {checks: [{name: a, type: tcp}]}\nnodeManagement: {presets: [cilium]}",
			"worker: {checks: [{name: a, type: tcp}, " + podNetwork + "]}\nnodeManagement: {prerequisites: {daemonSets: [" + cilium + "]}}"},
		"an own check in its place": {"worker: {checks: [{name: pod-network, type: tcp}]}\nnodeManagement: {presets: [cilium]}",
			"worker: {checks: [{name: pod-network, type: tcp}]}\nnodeManagement: {prerequisites: {daemonSets: [" + cilium + "]}}"},
		"of a profile": {"profiles: [{" + selector + ", presets: [gpu-nvidia, cilium]}]",
			"profiles: [{" + selector + ", checks: [" + builtIns + ", " + podNetwork + "], prerequisites: {daemonSets: [" + cilium + ", " + gpu + "], allocatable: {nvidia.com/gpu: 1}}}]"},
		"of a profile, with own and the file's": {"worker: {checks: [{name: a, type: tcp}]}\nnodeManagement: {presets: [ebs-csi], prerequisites: {nodeReady: true}}\nprofiles: [{" + selector + ", presets: [cilium]}]",
			"worker: {checks: [{name: a, type: tcp}]}\nnodeManagement: {prerequisites: {nodeReady: true, daemonSets: [" + ebs + "]}}\nprofiles: [{" + selector +
				", checks: [{name: a, type: tcp}, " + podNetwork + "], prerequisites: {nodeReady: true, daemonSets: [" + ebs + ", " + cilium + "]}}]"},
		"of the file, where a profile replaces": {"nodeManagement: {presets: [cilium], prerequisites: {nodeReady: true}}\nprofiles: [{" + selector + ", checks: [{name: b, type: tcp}], prerequisites: {allocatable: {a/b: 2}}}]",
			"worker: {checks: [" + builtIns + ", " + podNetwork + "]}\nnodeManagement: {prerequisites: {nodeReady: true, daemonSets: [" + cilium + "]}}\nprofiles: [{" + selector +
				", checks: [{name: b, type: tcp}, " + podNetwork + "], prerequisites: {allocatable: {a/b: 2}, daemonSets: [" + cilium + "]}}]"},
		"of both": {"nodeManagement: {presets: [gpu-nvidia]}\nprofiles: [{" + selector + ", presets: [gpu-nvidia], prerequisites: {allocatable: {nvidia.com/gpu: 8}}}]",
			"nodeManagement: {prerequisites: {daemonSets: [" + gpu + "]}}\nprofiles: [{" + selector + ", prerequisites: {allocatable: {nvidia.com/gpu: 8}, daemonSets: [" + gpu + "]}}]"},
		"of the file alone": {"nodeManagement: {presets: [cilium]}\nprofiles: [{" + selector + ", timeoutSeconds: 60}]",
			"worker: {checks: [" + builtIns + ", " + podNetwork + "]}\nnodeManagement: {prerequisites: {daemonSets: [" + cilium + "]}}\nprofiles: [{" + selector + ", timeoutSeconds: 60}]"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(t, test.presets).Print()
			if err != nil {
				t.Fatal(err)
			}
			want, err := parse(t, test.written).Print()
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("it stands for\n%s\nand not for\n%s", got, want)
			}
		})
	}
}

// Where nothing has an entry's name, the remedy of a preset's is what to write in its place.
func TestRemedy(t *testing.T) {
	c := parse(t, "nodeManagement: {presets: [cilium, ebs-csi, gpu-nvidia], prerequisites: {daemonSets: [{namespace: a, name: b}]}}")
	const instead = " expects this name; if yours has another name, add {namespace: NAMESPACE, name: NAME"
	named := c.For(nil).Prerequisites.DaemonSets.Named
	for i, want := range []string{
		"correct prerequisites.daemonSets, or install it",
		"preset cilium" + instead + "} to prerequisites.daemonSets instead of the preset",
		"preset ebs-csi" + instead + `, provides: {"csiNodes":[{"driver":"ebs.csi.aws.com","allocatable":true}]}} to prerequisites.daemonSets instead of the preset`,
		"preset gpu-nvidia" + instead + `, provides: {"allocatable":{"nvidia.com/gpu":"1"}}} to prerequisites.daemonSets instead of the preset; the operator creates it with`,
	} {
		if got := named[i].Remedy(); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", named[i].String(), got, want)
		}
	}
}

// What is in the table is fit to be in a file, and documented.
func TestPresetTable(t *testing.T) {
	names := map[Preset]bool{}
	for _, d := range Presets() {
		if names[d.Name] || d.Trouble == "" || len(d.Reports) == 0 || len(d.Sources) == 0 || len(d.DaemonSets) == 0 {
			t.Errorf("preset %s: %+v", d.Name, d)
		}
		names[d.Name] = true
		for _, r := range d.Reports {
			if !strings.HasPrefix(r, "https://github.com/") {
				t.Errorf("preset %s: report %s", d.Name, r)
			}
		}
		file, err := sigsyaml.Marshal(map[string]any{"nodeManagement": map[string]any{"prerequisites": d.Expansion().Prerequisites}, "worker": map[string]any{"checks": d.Checks}})
		if err != nil {
			t.Fatal(err)
		}
		read := parse(t, string(file))
		written := d.Expansion().Prerequisites
		for i := range written.DaemonSets.Named {
			written.DaemonSets.Named[i].Preset, written.DaemonSets.Named[i].Hint = "", ""
		}
		if !reflect.DeepEqual(read.NodeManagement.Prerequisites, written) {
			t.Errorf("preset %s: %+v is read as %+v", d.Name, written, read.NodeManagement.Prerequisites)
		}
	}
	if len(names) != 12 {
		t.Errorf("%d presets", len(names))
	}
}

// With presets there may be more checks than are possible; the fault says so.
func TestPresetsMakeTooManyChecks(t *testing.T) {
	specs := make([]string, checks.MaxChecks)
	for i := range specs {
		specs[i] = "{name: c" + strings.Repeat("x", i%50) + string(rune('a'+i/50)) + ", type: tcp}"
	}
	_, err := Parse([]byte("worker: {checks: ["+strings.Join(specs, ", ")+"]}\nnodeManagement: {presets: [cilium]}"), "config.yaml")
	if err == nil || !strings.Contains(err.Error(), "worker.checks") {
		t.Errorf("%v", err)
	}
}
