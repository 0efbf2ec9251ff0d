package check

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// headerForm is a header's name: a token of RFC 9110, section 5.6.2.
var headerForm = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// headerValueForm is one line of visible characters, spaces and tabs (RFC 9110, section 5.5).
var headerValueForm = regexp.MustCompile(`^[\t\x20-\x7e\x80-\x{10ffff}]*$`)

func (h *HTTP) validate(p *field.Path) field.ErrorList {
	if h == nil || h.URL == "" {
		return field.ErrorList{field.Required(p.Child("url"), "what to request, as in https://registry.example.com/v2/")}
	}
	var faults field.ErrorList
	// The URL is not repeated in a fault: it may hold a password.
	secure := true
	u, err := url.Parse(h.URL)
	switch {
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https":
		faults = append(faults, field.Invalid(p.Child("url"), "(not shown)", "must be an http or https URL with a host"))
	case u.User != nil:
		faults = append(faults, field.Invalid(p.Child("url"), "(not shown)", "must not hold a user or password; use headers"))
	case u.Port() == "0":
		faults = append(faults, field.Invalid(p.Child("url"), "(not shown)", "the port must be from 1 to 65535"))
	default:
		secure = u.Scheme == "https"
	}
	faults = append(faults, oneOf(p.Child("method"), h.Method, []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodOptions})...)
	for name, value := range h.Headers {
		if !headerForm.MatchString(name) {
			faults = append(faults, field.Invalid(p.Child("headers").Key(name), name, "is not the name of a header"))
		}
		if !headerValueForm.MatchString(value) {
			faults = append(faults, field.Invalid(p.Child("headers").Key(name), "(not shown)", "must be one line without control characters"))
		}
	}
	for i, status := range h.ExpectStatus {
		faults = append(faults, inRange(p.Child("expectStatus").Index(i), status, 100, 599)...)
	}
	faults = append(faults, h.validateRest(p)...)
	if secure {
		return faults
	}
	for _, s := range []struct {
		name string
		set  bool
	}{{"ca", h.CA != ""}, {"caFile", h.CAFile != ""}, {"serverName", h.ServerName != ""}, {"minCertificateValidityHours", h.MinCertificateValidityHours != 0}} {
		if s.set {
			faults = append(faults, field.Forbidden(p.Child(s.name), "has no meaning with an http URL; use https or remove it"))
		}
	}
	return faults
}

func (h *HTTP) validateRest(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	if _, err := regexp.Compile(h.ExpectBody); err != nil {
		faults = append(faults, field.Invalid(p.Child("expectBody"), h.ExpectBody, "must be a regular expression: "+err.Error()))
	}
	if h.ExpectBody != "" && h.Method == http.MethodHead {
		faults = append(faults, field.Forbidden(p.Child("expectBody"), "a response to HEAD has no body"))
	}
	faults = append(faults, inRange(p.Child("maxRedirects"), h.MaxRedirects, 0, 10)...)
	if h.CA != "" && h.CAFile != "" {
		faults = append(faults, field.Forbidden(p.Child("caFile"), "give either ca or caFile"))
	}
	if h.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(h.CA)) {
		faults = append(faults, field.Invalid(p.Child("ca"), "(not shown)", "must hold at least one PEM certificate"))
	}
	faults = append(faults, absolute(p.Child("caFile"), h.CAFile)...)
	if h.ServerName != "" {
		if fault := DNSNameFault(h.ServerName); fault != "" {
			faults = append(faults, field.Invalid(p.Child("serverName"), h.ServerName, fault))
		}
	}
	return append(faults, inRange(p.Child("minCertificateValidityHours"), h.MinCertificateValidityHours, 0, 10*365*24)...)
}

func (c *Peers) validate(p *field.Path) field.ErrorList {
	if c == nil {
		return field.ErrorList{field.Required(p, "peers needs a selector and a port")}
	}
	faults := k8sName(p.Child("namespace"), c.Namespace, validation.IsDNS1123Label)
	if c.Selector == "" {
		faults = append(faults, field.Required(p.Child("selector"), "a label selector such as app=web"))
	} else if _, err := labels.Parse(c.Selector); err != nil {
		faults = append(faults, field.Invalid(p.Child("selector"), c.Selector, "is not a label selector: "+err.Error()))
	}
	if c.Port == 0 {
		faults = append(faults, field.Required(p.Child("port"), "the TCP port that the pods listen on"))
	} else {
		faults = append(faults, inRange(p.Child("port"), c.Port, 1, 65535)...)
	}
	faults = append(faults, inRange(p.Child("sample"), c.Sample, 0, 100)...)
	faults = append(faults, inRange(p.Child("failPercent"), c.FailPercent, 0, 100)...)
	return append(faults, inRange(p.Child("minPeers"), c.MinPeers, 0, 10_000)...)
}

func (m *MTU) validate(p *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var faults field.ErrorList
	if m.Address != "" {
		if err := validateHostPort(m.Address); err != nil {
			faults = append(faults, field.Invalid(p.Child("address"), m.Address, err.Error()))
		}
	} else if m.Protocol != "" && m.Protocol != MTUTLS {
		faults = append(faults, field.Invalid(p.Child("protocol"), m.Protocol, "the Kubernetes Service speaks tls only; give an address or remove it"))
	}
	faults = append(faults, oneOf(p.Child("protocol"), m.Protocol, []string{MTURaw, MTUEcho, MTUTLS})...)
	if m.PayloadBytes != 0 {
		low := int32(1)
		if m.Protocol == MTUTLS || m.Address == "" {
			low = 600 // a ClientHello needs so much itself
		}
		faults = append(faults, inRange(p.Child("payloadBytes"), m.PayloadBytes, low, MaxMTUPayload)...)
	}
	return faults
}

func (c *Clock) validate(p *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	return inRange(p.Child("maxSkewSeconds"), c.MaxSkewSeconds, 0, 86_400)
}

func (f *File) validate(p *field.Path) field.ErrorList {
	if f == nil || f.Path == "" {
		return field.ErrorList{field.Required(p.Child("path"), "the path to look at")}
	}
	faults := absolute(p.Child("path"), f.Path)
	faults = append(faults, oneOf(p.Child("kind"), f.Kind, []string{KindFile, KindDirectory, KindSocket, KindDevice})...)
	if f.Writable && (f.Kind == KindSocket || f.Kind == KindDevice) {
		faults = append(faults, field.Forbidden(p.Child("writable"), "is only checked of files and directories; remove it"))
	}
	return faults
}

func (d *Disk) validate(p *field.Path) field.ErrorList {
	if d == nil || d.Path == "" {
		return field.ErrorList{field.Required(p.Child("path"), "a directory on the file system to look at")}
	}
	faults := absolute(p.Child("path"), d.Path)
	if d.MinFreeBytes < 0 {
		faults = append(faults, field.Invalid(p.Child("minFreeBytes"), d.MinFreeBytes, "must be at least 0"))
	}
	faults = append(faults, inRange(p.Child("minFreePercent"), d.MinFreePercent, 0, 100)...)
	faults = append(faults, inRange(p.Child("minFreeInodesPercent"), d.MinFreeInodesPercent, 0, 100)...)
	faults = append(faults, inRange(p.Child("maxWriteLatencyMs"), d.MaxWriteLatencyMs, 0, 600_000)...)
	if d.MinFreeBytes == 0 && d.MinFreePercent == 0 && d.MinFreeInodesPercent == 0 && d.MaxWriteLatencyMs == 0 {
		faults = append(faults, field.Required(p, "set minFreeBytes, minFreePercent, minFreeInodesPercent or maxWriteLatencyMs; without any, nothing would be checked"))
	}
	return faults
}

func (e *Exec) validate(p *field.Path) field.ErrorList {
	if e == nil || len(e.Command) == 0 && e.ResultFile == "" {
		return field.ErrorList{field.Required(p.Child("command"), "the command to run, or resultFile")}
	}
	var faults field.ErrorList
	if len(e.Command) > 0 && e.ResultFile != "" {
		faults = append(faults, field.Forbidden(p.Child("resultFile"), "give either command or resultFile"))
	}
	if len(e.Command) > 0 && e.Command[0] == "" {
		faults = append(faults, field.Required(p.Child("command").Index(0), "the program to run"))
	}
	if i := slices.IndexFunc(e.Command, func(s string) bool { return slices.Contains([]byte(s), 0) }); i >= 0 {
		faults = append(faults, field.Invalid(p.Child("command").Index(i), "(not shown)", "must not contain a zero byte"))
	}
	faults = append(faults, absolute(p.Child("resultFile"), e.ResultFile)...)
	faults = append(faults, oneOf(p.Child("onUnknown"), e.OnUnknown, []string{UnknownInconclusive, UnknownFail, UnknownWarn})...)
	return append(faults, inRange(p.Child("maxOutputBytes"), e.MaxOutputBytes, 0, 4096)...)
}

// absolute faults a path that is given but not absolute, or not in its shortest form.
func absolute(p *field.Path, value string) field.ErrorList {
	switch {
	case value == "":
		return nil
	case !path.IsAbs(value):
		return field.ErrorList{field.Invalid(p, value, "must be an absolute path")}
	case slices.Contains([]byte(value), 0):
		return field.ErrorList{field.Invalid(p, value, "must not contain a zero byte")}
	case path.Clean(value) != value && path.Clean(value)+"/" != value:
		return field.ErrorList{field.Invalid(p, value, fmt.Sprintf("write it as %s", path.Clean(value)))}
	}
	return nil
}
