// Command render answers "helm template" again and again: half of what a helm process computes for a rendering of our
// chart is its own start. Each line of its input is a request, and each line of its output the answer to one. It renders
// with Helm's own packages, and reads the chart anew each time. It ends at the end of its input.
//
//	{"args": ["release", "chart", "--namespace", "n", "--kube-version", "1.36.0", "--values", "file"]}
//	{"stdout": "...", "failure": ""}
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli"
	"helm.sh/helm/v3/pkg/cli/values"
	"helm.sh/helm/v3/pkg/getter"
)

// request has the arguments of "helm template", without that word.
type request struct {
	Args []string `json:"args"`
}

// response has what helm would have printed, and its error message if it would have failed.
type response struct {
	Stdout  string `json:"stdout"`
	Failure string `json:"failure"`
}

func main() {
	requests, responses := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r request
		switch err := requests.Decode(&r); {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			log.Fatal(err)
		}
		var warnings bytes.Buffer
		log.SetOutput(&warnings) // where Helm prints what it does not like about values
		out, err := template(r.Args)
		answer := response{Stdout: out}
		if err != nil {
			answer = response{Failure: fmt.Sprintf("%sError: %s\n", &warnings, err)}
		}
		log.SetOutput(os.Stderr)
		if err := responses.Encode(answer); err != nil {
			log.Fatal(err)
		}
	}
}

// template does what Helm's command does (cmd/helm/template.go), which is no package that can be imported. A flag that it
// does not know is an error.
func template(args []string) (string, error) {
	client := action.NewInstall(&action.Configuration{Log: func(string, ...any) {}})
	client.DryRun, client.DryRunOption, client.ClientOnly, client.Replace = true, "true", true, true

	var kubeVersion string
	var apiVersions []string
	var options values.Options
	flags := pflag.NewFlagSet("template", pflag.ContinueOnError)
	flags.StringVarP(&client.Namespace, "namespace", "n", "default", "")
	flags.StringVar(&kubeVersion, "kube-version", "", "")
	flags.StringSliceVarP(&apiVersions, "api-versions", "a", nil, "")
	flags.BoolVar(&client.SkipSchemaValidation, "skip-schema-validation", false, "")
	flags.BoolVar(&client.DisableHooks, "no-hooks", false, "")
	flags.BoolVar(&client.IsUpgrade, "is-upgrade", false, "")
	flags.StringSliceVarP(&options.ValueFiles, "values", "f", nil, "")
	flags.StringArrayVar(&options.Values, "set", nil, "")
	flags.StringArrayVar(&options.StringValues, "set-string", nil, "")
	flags.StringArrayVar(&options.FileValues, "set-file", nil, "")
	flags.StringArrayVar(&options.JSONValues, "set-json", nil, "")
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	if kubeVersion != "" {
		version, err := chartutil.ParseKubeVersion(kubeVersion)
		if err != nil {
			return "", fmt.Errorf("invalid kube version '%s': %w", kubeVersion, err)
		}
		client.KubeVersion = version
	}
	client.APIVersions = apiVersions

	name, path, err := client.NameAndChart(flags.Args())
	if err != nil {
		return "", err
	}
	client.ReleaseName = name
	merged, err := options.MergeValues(getter.All(cli.New()))
	if err != nil {
		return "", err
	}
	chart, err := loader.Load(path)
	if err != nil {
		return "", err
	}
	if dependencies := chart.Metadata.Dependencies; dependencies != nil {
		if err := action.CheckDependencies(chart, dependencies); err != nil {
			return "", err
		}
	}
	release, err := client.Run(chart, merged)
	if err != nil {
		if release != nil {
			err = fmt.Errorf("%w\n\nUse --debug flag to render out invalid YAML", err)
		}
		return "", err
	}
	var out strings.Builder
	_, _ = fmt.Fprintln(&out, strings.TrimSpace(release.Manifest))
	if !client.DisableHooks {
		for _, hook := range release.Hooks {
			_, _ = fmt.Fprintf(&out, "---\n# Source: %s\n%s\n", hook.Path, hook.Manifest)
		}
	}
	return out.String(), nil
}
