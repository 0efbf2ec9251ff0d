package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The Dockerfile's last stage is the image that Pack makes: same base, files, user, entrypoint.
func TestDockerfileDescribesTheSameImage(t *testing.T) {
	content, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var final []string
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "FROM "):
			final = []string{line}
		case strings.HasPrefix(line, "COPY "), strings.HasPrefix(line, "USER "), strings.HasPrefix(line, "ENTRYPOINT "), strings.HasPrefix(line, "RUN "):
			final = append(final, line)
		}
	}
	want := []string{
		"FROM scratch",
		"COPY --from=build --chmod=0444 " + certificatesPath + " " + certificatesPath,
		"COPY --from=build --chmod=0555 /out/kube-node-ready-controller /kube-node-ready-controller",
		"COPY --from=build --chmod=0555 /out/kube-node-ready-worker /kube-node-ready-worker",
		"USER " + user,
		`ENTRYPOINT ["/kube-node-ready-controller"]`,
	}
	if !slices.Equal(final, want) {
		t.Errorf("the Dockerfile's last stage is\n%s\nwant\n%s", strings.Join(final, "\n"), strings.Join(want, "\n"))
	}
}
