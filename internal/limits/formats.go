package limits

import (
	"path"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Format is a form of text.
type Format struct {
	// Name is what such a text is, as "a DNS label".
	Name string
	// Pattern is the form; where Kubernetes has a rule, it refuses nothing that the rule takes.
	Pattern *regexp.Regexp
	// MaxLength in bytes; 0 for no limit but the pattern's.
	MaxLength int

	rule func(string) []string // what is wrong with a text; nil where pattern and length decide
}

// Parts of patterns: names as Kubernetes has them (k8s.io/apimachinery/pkg/util/validation), and the host and a
// component of an image reference (https://github.com/distribution/reference/blob/main/reference.go).
const (
	label     = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
	anyLabel  = `[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?`
	subdomain = label + `(\.` + label + `)*`
	anyDomain = anyLabel + `(\.` + anyLabel + `)*`
	name      = `([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]`
	host      = `[A-Za-z0-9]+([.-]+[A-Za-z0-9]+)*`
	component = `[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*`
)

// maxDriver is the length of a CSI driver's name (ValidateCSIDriverName in k8s.io/kubernetes pkg/apis/core/validation)
// and of a DRA driver's (DriverNameMaxLength in k8s.io/api/resource/v1).
const maxDriver = 63

// formats are by what a tag calls them.
var formats = map[string]Format{
	"dns-label": {"a DNS label", whole(label), 63, validation.IsDNS1123Label},
	"dns-1035-label": {"a DNS label that begins with a letter", whole(`[a-z]([-a-z0-9]*[a-z0-9])?`), 63,
		validation.IsDNS1035Label},
	"dns-subdomain":  {"a DNS name", whole(subdomain), 253, validation.IsDNS1123Subdomain},
	"csi-driver":     {"a DNS name", whole(anyDomain), maxDriver, lower(validation.IsDNS1123Subdomain)},
	"dra-driver":     {"a DNS name", whole(subdomain), maxDriver, validation.IsDNS1123Subdomain},
	"qualified-name": {"a qualified name", whole(`(` + subdomain + `/)?` + name), 0, validation.IsQualifiedName},
	"annotation-key": {"the key of an annotation", whole(`(` + anyDomain + `/)?` + name), 0,
		lower(validation.IsQualifiedName)},
	"label-value":   {"the value of a label", whole(`(` + name + `)?`), 63, validation.IsValidLabelValue},
	"absolute-path": {"an absolute path", regexp.MustCompile(`^/`), 0, nil},
	"clean-path":    {"an absolute path", regexp.MustCompile(`^/`), 0, cleanPath},
	"port-name":     {"the name of one of the Service's ports", whole(label), 63, nil},
	"kind":          {"a kind in upper camel case, as in CiliumNode", whole(`[A-Z][A-Za-z0-9]{0,62}`), 0, nil},
	"percentage":    {`a number of nodes, or a percentage from "0%" to "100%"`, whole(`(100|[1-9]?[0-9])%`), 0, nil},
	"check-name": {"at most 63 letters, digits, '-', '_' and '.', with a letter or digit at each end",
		whole(name), 63, nil},
	"image-repository": {"a registry and a path in lower case, without tag or digest, as in " +
		"ghcr.io/kube-node-ready/kube-node-ready",
		whole(`(` + host + `(:[0-9]+)?/)?` + component + `(/` + component + `)*`), 255, nil},
	"image-tag": {"at most 128 letters, digits, '_', '.' and '-', starting with a letter, a digit or '_'",
		whole(`[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}`), 0, nil},
	"image-digest": {"sha256: and 64 hexadecimal digits in lower case", whole(`sha256:[a-f0-9]{64}`), 0, nil},
}

func whole(pattern string) *regexp.Regexp { return regexp.MustCompile(`^` + pattern + `$`) }

// lower is a rule that the API server applies to a text in lower case.
func lower(rule func(string) []string) func(string) []string {
	return func(s string) []string { return rule(strings.ToLower(s)) }
}

// faults is what is wrong with a text.
func (f Format) faults(s string) []string {
	long := f.MaxLength > 0 && len(s) > f.MaxLength
	switch {
	case f.rule == nil && (long || !f.Pattern.MatchString(s)):
		return []string{"must be " + f.Name}
	case f.rule == nil:
		return nil
	case long:
		return []string{validation.MaxLenError(f.MaxLength)}
	}
	return f.rule(s)
}

// cleanPath takes an absolute path in its shortest form.
func cleanPath(s string) []string {
	switch clean := path.Clean(s); {
	case !path.IsAbs(s):
		return []string{"must be an absolute path"}
	case strings.Contains(s, "\x00"):
		return []string{"must not contain a zero byte"}
	case clean != s && clean+"/" != s:
		return []string{"write it as " + clean}
	}
	return nil
}
