package manager

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// metricsOptions configures how /metrics is served. rc is for reviews of the scraper's token. It is not the manager's
// configuration, through which only the leader may write.
func metricsOptions(m config.Metrics, rc *rest.Config) (server.Options, error) {
	if !*m.Enabled {
		return server.Options{BindAddress: "0"}, nil // controller-runtime's "off"
	}
	o := server.Options{BindAddress: fmt.Sprintf(":%d", m.Port), SecureServing: m.Secure, CertDir: m.CertificateDir}
	if !m.Secure {
		return o, nil
	}
	if m.CertificateDir != "" {
		for _, name := range []string{"tls.crt", "tls.key"} { // controller-runtime would go on without them
			if _, err := os.Stat(filepath.Join(m.CertificateDir, name)); err != nil {
				return o, fmt.Errorf("metrics.certificateDir: %w", err)
			}
		}
	}
	// A client that resets its HTTP/2 requests costs a server more than itself (CVE-2023-44487).
	o.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}
	o.FilterProvider = func(*rest.Config, *http.Client) (server.Filter, error) {
		// Anyone who reaches the port can cause requests to the API server, so their rate is low.
		rc.QPS, rc.Burst, rc.Timeout = 5, 10, 10*time.Second
		c, err := kubernetes.NewForConfig(rc)
		if err != nil {
			return nil, err
		}
		return func(l logr.Logger, next http.Handler) (http.Handler, error) { return admit(c, l, next), nil }, nil
	}
	return o, nil
}

// admit allows a request only if the API server knows its bearer token and permits its user to get the path. A filter
// of controller-runtime does the same with the API server's own packages. Those would nearly double the size of this
// program.
func admit(c kubernetes.Interface, l logr.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || token == "" {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		who, err := c.AuthenticationV1().TokenReviews().Create(r.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		if err != nil {
			l.Error(err, "cannot authenticate the scraper")
			http.Error(w, "cannot review the token", http.StatusInternalServerError)
			return
		}
		if !who.Status.Authenticated {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		user := who.Status.User
		extra := map[string]authorizationv1.ExtraValue{}
		for k, v := range user.Extra {
			extra[k] = authorizationv1.ExtraValue(v)
		}
		reviews := c.AuthorizationV1().SubjectAccessReviews()
		access := authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: strings.ToLower(r.Method)},
		}
		may, err := reviews.Create(r.Context(), &authorizationv1.SubjectAccessReview{Spec: access}, metav1.CreateOptions{})
		switch {
		case err != nil:
			l.Error(err, "cannot authorize the scraper", "user", user.Username)
			http.Error(w, "cannot review the access", http.StatusInternalServerError)
		case !may.Status.Allowed:
			http.Error(w, user.Username+" may not "+strings.ToLower(r.Method)+" "+r.URL.Path, http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
