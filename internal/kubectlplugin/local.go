package kubectlplugin

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	comingfrom "github.com/kube-node-ready/kube-node-ready/docs/guides/coming-from"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// validate is config validate FILE: it does with the file what the controller does at its start.
func validate(_ context.Context, v *invocation) error {
	path := v.args[0]
	var content []byte
	var err error
	if path == "-" {
		content, err = io.ReadAll(os.Stdin)
	} else {
		content, err = os.ReadFile(path)
	}
	if err != nil {
		return err
	}
	cfg, err := config.Parse(content, path)
	if err != nil {
		return err
	}
	if _, err := workerpod.NewBuilder(cfg, "default", "image"); err != nil {
		return usageErrorf("%w", err)
	}
	fmt.Fprintf(&v.out, "%s is valid\n", path)
	return nil
}

// comingFrom prints the page for those who used another controller, or the names of the pages.
func comingFrom(_ context.Context, v *invocation) error {
	names := comingFromNames()
	if len(v.args) == 0 {
		fmt.Fprintln(&v.out, strings.Join(names, "\n"))
		return nil
	}
	page, err := comingfrom.Pages.ReadFile(v.args[0] + ".md")
	if err != nil {
		return usageErrorf("coming-from takes %s, not %q", strings.Join(names, ", "), v.args[0])
	}
	v.out.Write(page)
	return nil
}

func comingFromNames() (names []string) {
	files, _ := comingfrom.Pages.ReadDir(".") // embedded: it cannot fail
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".md"))
	}
	return names
}

// printVersion prints which build this is.
func printVersion(_ context.Context, v *invocation) error {
	if v.structured() {
		return v.printObject(map[string]string{
			"version": version.Version, "commit": version.Commit, "buildDate": version.BuildDate})
	}
	fmt.Fprintln(&v.out, "kubectl-node_ready "+version.String())
	return nil
}
