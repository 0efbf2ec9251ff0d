package http

import (
	"crypto/x509"
	"net/http"
	"net/url"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// headerForm is a header's name: a token of RFC 9110, section 5.6.2.
var headerForm = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// headerValueForm is one line of visible characters, spaces and tabs (RFC 9110, section 5.5).
var headerValueForm = regexp.MustCompile(`^[\t\x20-\x7e\x80-\x{10ffff}]*$`)

// Settings sends a request and looks at the response.
type Settings struct {
	// URL, http or https. Its host is resolved as a pod would resolve it.
	URL string `json:"url" required:"what to request, as in https://registry.example.com/v2/"`
	// Proxy is the HTTP proxy for the request, for example http://proxy.example:3128. The proxy then resolves the URL's
	// host. Default: none. HTTP_PROXY and HTTPS_PROXY are not read.
	Proxy string `json:"proxy,omitempty"`
	// Method of the request. Default GET.
	Method string `json:"method,omitempty" enum:"GET HEAD POST PUT OPTIONS"`
	// Headers of the request. Host sets the request's host. Values are never reported.
	Headers map[string]string `json:"headers,omitempty"`
	// Body of the request.
	Body string `json:"body,omitempty"`
	// ExpectStatus lists the statuses that pass. Default: 200 to 299.
	ExpectStatus []int32 `json:"expectStatus,omitempty" minimum:"100" maximum:"599"`
	// ExpectBody is a regular expression (RE2) that the first 64 KiB of the body must match.
	ExpectBody string `json:"expectBody,omitempty"`
	// MaxRedirects that are followed. Default 0: a redirect is a failure, unless its status is
	// expected.
	MaxRedirects int32 `json:"maxRedirects,omitempty" minimum:"0" maximum:"10"`
	// CA is a PEM bundle of authorities to trust instead of the system's.
	CA string `json:"ca,omitempty"`
	// CAFile is a file in the worker's container that holds such a bundle.
	CAFile string `json:"caFile,omitempty" format:"clean-path"`
	// ServerName is sent as SNI and must be in the certificate. Default: the URL's host.
	ServerName string `json:"serverName,omitempty"`
	// MinCertificateValidityHours is how long the server's certificate must still be valid. Default 0.
	MinCertificateValidityHours int32 `json:"minCertificateValidityHours,omitempty" minimum:"0" maximum:"87600"`
}

// Validate checks the rules that tags cannot express.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	var errs field.ErrorList
	// The error does not repeat the URL: it may have a password.
	secure := true
	u, err := url.Parse(s.URL)
	switch {
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https":
		errs = append(errs, field.Invalid(p.Child("url"), "(not shown)", "must be an http or https URL with a host"))
	case u.User != nil:
		errs = append(errs, field.Invalid(p.Child("url"), "(not shown)", "must not hold a user or password; use headers"))
	case u.Port() == "0":
		errs = append(errs, field.Invalid(p.Child("url"), "(not shown)", "the port must be from 1 to 65535"))
	default:
		secure = u.Scheme == "https"
	}
	for name, value := range s.Headers {
		if !headerForm.MatchString(name) {
			errs = append(errs, field.Invalid(p.Child("headers").Key(name), name, "is not the name of a header"))
		}
		if !headerValueForm.MatchString(value) {
			errs = append(errs, field.Invalid(p.Child("headers").Key(name), "(not shown)",
				"must be one line without control characters"))
		}
	}
	errs = append(errs, s.validateProxy(p.Child("proxy"))...)
	errs = append(errs, s.validateResponse(p)...)
	if secure {
		return errs
	}
	forTLS := func(name string, set bool) {
		if set {
			errs = append(errs, field.Forbidden(p.Child(name), "has no meaning with an http URL; use https or remove it"))
		}
	}
	forTLS("ca", s.CA != "")
	forTLS("caFile", s.CAFile != "")
	forTLS("serverName", s.ServerName != "")
	forTLS("minCertificateValidityHours", s.MinCertificateValidityHours != 0)
	return errs
}

func (s *Settings) validateResponse(p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if _, err := regexp.Compile(s.ExpectBody); err != nil {
		errs = append(errs,
			field.Invalid(p.Child("expectBody"), s.ExpectBody, "must be a regular expression: "+err.Error()))
	}
	if s.ExpectBody != "" && s.Method == http.MethodHead {
		errs = append(errs, field.Forbidden(p.Child("expectBody"), "a response to HEAD has no body"))
	}
	if s.CA != "" && s.CAFile != "" {
		errs = append(errs, field.Forbidden(p.Child("caFile"), "give either ca or caFile"))
	}
	if s.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(s.CA)) {
		errs = append(errs, field.Invalid(p.Child("ca"), "(not shown)", "must hold at least one PEM certificate"))
	}
	if s.ServerName != "" {
		if err := resolver.ValidateName(s.ServerName); err != nil {
			errs = append(errs, field.Invalid(p.Child("serverName"), s.ServerName, err.Error()))
		}
	}
	return errs
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }
