//go:build linux

package realnode

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
)

// Kubectl runs the cluster's kubectl as its administrator and returns what it prints. A
// non-empty input is its standard input.
func (c *Cluster) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), append([]string{
		"--kubeconfig", c.ControlPlane.Kubeconfig(), "--cache-dir", filepath.Join(c.dir, "kubectl"),
	}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// InstallDNS deploys CoreDNS, two replicas on different nodes, behind the Service kube-dns. It
// returns at once; the pods run as soon as there are nodes with the image.
func (c *Cluster) InstallDNS(ctx context.Context) error {
	tmpl, err := template.ParseFS(templates, "templates/coredns.yaml")
	if err != nil {
		return err
	}
	var manifest bytes.Buffer
	if err := tmpl.Execute(&manifest, map[string]any{"CoreDNSImage": CoreDNSImage, "DNSAddress": DNSAddress}); err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, manifest.String(), "apply", "--server-side", "-f", "-")
	return err
}
