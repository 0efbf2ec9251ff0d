package nodeagent

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// kubelet is the part of a kubelet's API that kubectl logs uses, for all nodes of an agent.
type kubelet struct {
	agent  *Agent
	server *http.Server
	config *tls.Config
}

// newKubelet makes the server; it answers only clients that the cluster's authority certified.
func newKubelet(a *Agent) (*kubelet, error) {
	cert, key, err := a.cluster.ServingCertificate("system:node:agent", net.IPv4(127, 0, 0, 1))
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(a.cluster.CA())
	k := &kubelet{agent: a, config: &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	k.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return k, nil
}

// listen serves a node's address. Where the address is not local (outside Linux only
// 127.0.0.1 is) there are no logs, and the port is 0.
func (k *kubelet) listen(ip string) (net.Listener, int32) {
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return nil, 0
	}
	go func() { _ = k.server.Serve(tls.NewListener(listener, k.config)) }()
	return listener, int32(listener.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
}

// logs answers kubectl logs, with --follow and --tail; it refuses what else can be asked for.
func (k *kubelet) logs(w http.ResponseWriter, r *http.Request) {
	run := k.find(r.PathValue("namespace"), r.PathValue("pod"))
	if run == nil {
		http.Error(w, "no such pod on this node", http.StatusNotFound)
		return
	}
	tail, follow := -1, false
	for key, values := range r.URL.Query() {
		var err error
		switch key {
		case "follow":
			follow, err = strconv.ParseBool(values[0])
		case "tailLines":
			tail, err = strconv.Atoi(values[0])
		default:
			err = fmt.Errorf("the node agent does not know %q", key)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	file, err := os.Open(k.agent.LogFile(run.pod, r.PathValue("container")))
	if err != nil {
		http.Error(w, "the container has not started", http.StatusBadRequest)
		return
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(file)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(lastLines(content, tail))
	for follow {
		ended := run.isTerminal() // before reading: what was written until then is read
		if n, err := io.Copy(w, file); err != nil || ended && n == 0 {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (k *kubelet) find(namespace, name string) *podRun {
	k.agent.mu.Lock()
	defer k.agent.mu.Unlock()
	for _, run := range k.agent.runs {
		if run.pod.Namespace == namespace && run.pod.Name == name {
			return run
		}
	}
	return nil
}

func (r *podRun) isTerminal() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terminal
}

// lastLines are the last n lines of a text; all of it where n is negative.
func lastLines(text []byte, n int) []byte {
	if n < 0 {
		return text
	}
	start := len(text)
	for range n {
		end := max(start-1, 0) // the line's own newline does not end the one before it
		start = bytes.LastIndexByte(text[:end], '\n') + 1
		if start == 0 {
			break
		}
	}
	return text[start:]
}

// endpoints tells the API server where the node's logs are served.
func endpoints(port int32) corev1.NodeDaemonEndpoints {
	return corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}}
}
