// Package checks has the table of check types and the entries of worker.checks. A type is a folder below this one, with
// its settings, their validation and the check, and a line in Table.
package checks

import (
	"reflect"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/clock"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/disk"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/exec"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/file"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/http"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/kubernetesapi"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/mtu"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/peers"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/servicediscovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/tcp"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
)

// Table has a line for each type of check. The key of its settings is the type's name. Validation, the documentation
// and the chart's schema follow from it.
type Table struct {
	DNS              *dns.Settings              `json:"dns,omitempty"`
	KubernetesAPI    *kubernetesapi.Settings    `json:"kubernetesAPI,omitempty"`
	TCP              *tcp.Settings              `json:"tcp,omitempty"`
	HTTP             *http.Settings             `json:"http,omitempty"`
	ServiceDiscovery *servicediscovery.Settings `json:"serviceDiscovery,omitempty"`
	Peers            *peers.Settings            `json:"peers,omitempty"`
	MTU              *mtu.Settings              `json:"mtu,omitempty"`
	Clock            *clock.Settings            `json:"clock,omitempty"`
	File             *file.Settings             `json:"file,omitempty"`
	Disk             *disk.Settings             `json:"disk,omitempty"`
	Exec             *exec.Settings             `json:"exec,omitempty"`
}

// Settings are implemented by each type. Limits are tags on the fields; what tags cannot express is a limits.Validator.
// Both methods accept nil for a check without settings.
type Settings interface {
	// NeedsAPI reports whether the Kubernetes API is called.
	NeedsAPI() bool
	// New prepares the check of valid settings. environment.Pod.API may be nil unless NeedsAPI.
	New(environment.Pod) check.Func
}

// lines calls f with the name and the settings of each type, and whether they are set.
func (t Table) lines(f func(name Type, s Settings, set bool)) {
	v := reflect.ValueOf(t)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		f(Type(name), v.Field(i).Interface().(Settings), !v.Field(i).IsNil())
	}
}

// Values lists every check type, in the order of the documentation.
func (Type) Values() []string {
	var types []string
	Table{}.lines(func(name Type, _ Settings, _ bool) { types = append(types, string(name)) })
	return types
}

// Settings are those of the check's type; nil for an unknown type.
func (s Spec) Settings() (own Settings) {
	s.lines(func(name Type, settings Settings, _ bool) {
		if name == s.Type {
			own = settings
		}
	})
	return own
}
