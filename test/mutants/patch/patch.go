// Package patch puts a changed copy of sources in their place for one go build or go test, by an overlay.
package patch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// Apply applies a patch to copies of the files that it touches, in the folder, and returns the overlay.
func Apply(ctx context.Context, file, folder string) (overlay string, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	changed := map[string][]byte{}
	for line := range strings.Lines(string(content)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "+++ b/"); ok {
			changed[name] = nil
		}
	}
	overlay, err = Overlay(changed, folder)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "git", "apply", "--unsafe-paths", "-")
	cmd.Dir, cmd.Stdin = filepath.Join(folder, "planted"), bytes.NewReader(content)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("apply the patch: %w: %s", err, out)
	}
	return overlay, nil
}

// Overlay writes copies of files of the module into the folder, with other content where there is some, and returns the overlay.
func Overlay(changed map[string][]byte, folder string) (string, error) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, content := range changed {
		if content == nil {
			if content, err = os.ReadFile(filepath.Join(root, file)); err != nil {
				return "", err
			}
		}
		copied := filepath.Join(folder, "planted", file)
		if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(copied, content, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = copied
	}
	written, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(folder, "overlay.json")
	return overlay, os.WriteFile(overlay, written, 0o600)
}
