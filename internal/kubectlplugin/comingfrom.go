package kubectlplugin

import (
	"context"
	"fmt"
	"strings"

	comingfrom "github.com/kube-node-ready/kube-node-ready/docs/coming-from"
)

// comingFrom prints the page for those who used another controller, or the names of the pages.
func comingFrom(_ context.Context, v *invocation) error {
	if len(v.args) == 0 {
		for _, name := range comingFromNames() {
			fmt.Fprintln(&v.out, name)
		}
		return nil
	}
	page, err := comingfrom.Pages.ReadFile(v.args[0] + ".md")
	if err != nil {
		return refused("coming-from takes %s, not %q", strings.Join(comingFromNames(), ", "), v.args[0])
	}
	v.out.Write(page)
	return nil
}

func comingFromNames() []string {
	files, _ := comingfrom.Pages.ReadDir(".") // embedded: it cannot fail
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(f.Name(), ".md")
	}
	return names
}
