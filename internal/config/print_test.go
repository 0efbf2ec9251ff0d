package config

import (
	"os"
	"reflect"
	"testing"
)

// What is printed is a configuration file that stands for the same, without presets.
func TestPrintIsReadAsTheSame(t *testing.T) {
	example, err := os.ReadFile("../../examples/controller-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"empty":    "",
		"example":  string(example),
		"profiles": profiles,
		"others": `
kubernetes: {qps: 20}
worker:
  keepFailedSeconds: 0
  image: {tag: "1.10"}
  env: [{name: A, value: "yes"}]
  initContainers: [{name: warm, image: busybox, resources: {limits: {cpu: 100m}}}]
  volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}}]
  checks:
  - {name: dns, type: dns, dns: {expectRcode: NXDOMAIN, minAnswers: 0}}
  - {name: gpu, type: exec, exec: {command: [nvidia-smi]}, dependsOn: [dns]}
nodeManagement:
  reverify: {interval: 90m, onReboot: false}
  remediation: {maxUnhealthy: 3, window: 0h30m, maxDeletionsPerHour: 0}
  prerequisites:
    pods: [{namespace: a, selector: {matchExpressions: [{key: app, operator: In, values: [x, "on"]}]}, readyAnnotation: a/b=c}]
    resources: [{apiVersion: cilium.io/v2, kind: CiliumNode, selector: "node={{node}}", condition: Ready}]
`,
		"presets": `
nodeManagement:
  presets: [cilium, calico, aws-vpc-cni, istio-ambient, ebs-csi, efs-csi, gpu-nvidia]
  prerequisites: {daemonSets: auto}
profiles:
- {name: gpu, nodeSelector: {matchLabels: {gpu: "yes"}}, presets: [gpu-nvidia], checks: [{name: a, type: tcp}]}
- {name: spot, nodeSelector: {matchLabels: {pool: spot}}}
`,
	} {
		t.Run(name, func(t *testing.T) {
			c := parse(t, data)
			printed, err := c.Print()
			if err != nil {
				t.Fatal(err)
			}
			again := parse(t, string(printed))
			forgetPresets(c)
			if !reflect.DeepEqual(again, c) {
				t.Errorf("read as %+v, was %+v; printed:\n%s", again, c, printed)
			}
		})
	}
}

// forgetPresets leaves of the presets what they stand for. Only messages have their names.
func forgetPresets(c *Config) {
	c.NodeManagement.Presets = nil
	all := []*Prerequisites{&c.NodeManagement.Prerequisites}
	for i := range c.Profiles {
		c.Profiles[i].Presets = nil
		if p := c.Profiles[i].Prerequisites; p != nil {
			all = append(all, p)
		}
	}
	for _, p := range all {
		for i := range p.DaemonSets.Named {
			p.DaemonSets.Named[i].Preset, p.DaemonSets.Named[i].Hint = "", ""
		}
	}
}
