package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Paths of the webhooks: the one for the gating taints, and the one for the taints of rules.
const (
	Path      = "/mutate-node"
	RulesPath = "/mutate-node-rules"
)

// linger is how long a replica that was asked to stop goes on serving, until no kube-proxy and no API server sends it
// new requests.
const linger = 5 * time.Second

// Server is the webhook on one replica.
type Server struct {
	server ctrlwebhook.Server
	ready  healthz.Checker
}

// Source is where a server's certificate comes from: a Rotation, or a folder that another program keeps up to date.
type Source struct {
	Rotation *Rotation
	// Dir contains tls.crt and tls.key, which are read again when they change.
	Dir string
}

// NewServer serves the tainter's answers on the port.
func NewServer(t *Tainter, port int, from Source) *Server {
	options := ctrlwebhook.Options{Port: port, CertDir: from.Dir, TLSOpts: []func(*tls.Config){
		func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 },
	}}
	if from.Rotation != nil {
		options.TLSOpts = append(options.TLSOpts, func(c *tls.Config) { c.GetCertificate = from.Rotation.GetCertificate })
	}
	s := &Server{server: ctrlwebhook.NewServer(options)}
	s.server.Register(Path, answering(t))
	if t.Rules != nil {
		s.server.Register(RulesPath, answering(admission.HandlerFunc(t.HandleRules)))
	}
	started := s.server.StartedChecker()
	s.ready = func(r *http.Request) error {
		if from.Rotation != nil {
			if err := from.Rotation.Ready(); err != nil {
				return err
			}
		}
		return started(r)
	}
	return s
}

// answering returns the HTTP handler of an admission handler. It does not recover panics: a recovered one would be an
// answer that refuses the node. A call that fails is subject to the failurePolicy instead.
func answering(h admission.Handler) http.Handler {
	return &admission.Webhook{Handler: h, RecoverPanic: ptr.To(false)}
}

// Ready is the readiness check: it returns nil if the API server can call this replica.
func (s *Server) Ready(r *http.Request) error { return s.ready(r) }

// Beside serves while main runs, and ends main if it cannot serve. Once ctx is done, it goes on serving for a while,
// while main ends and after that, until no more requests are sent to this replica.
func (s *Server) Beside(ctx context.Context, main func(context.Context) error) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	running, end := context.WithCancel(ctx)
	defer end()
	served := make(chan error, 1)
	go func() {
		defer end()
		served <- s.server.Start(serving)
	}()
	context.AfterFunc(ctx, func() { time.AfterFunc(linger, stop) })
	err := main(running)
	if ctx.Err() == nil {
		stop()
	}
	return errors.Join(err, <-served)
}
