package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// File is a file of an image, owned by root.
type File struct {
	// Path in the image, absolute.
	Path string
	// Source is the file as the Dockerfile names it: a path of its build stage or, where Built is false, of its context.
	Source string
	Built  bool
	Mode   int64
}

// Stage is a stage of a Dockerfile, which is all that there is to an image.
type Stage struct {
	Files  []File
	Config v1.Config
}

// ReadStage reads the stage of a Dockerfile that is named target, or the last one. Arguments replace ${NAME} in it,
// where the stage declares NAME. The stage must be FROM scratch, or from such a stage. It may contain ARG, LABEL, COPY
// of single files with --chmod, USER, WORKDIR, and ENTRYPOINT in JSON form. Anything else is an error, because an image
// without it would be a different image.
func ReadStage(path, target string, arguments map[string]string) (Stage, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Stage{}, err
	}
	s := Stage{}
	named := map[string]Stage{} // the stages before, of those that are read
	var known []string          // what replaces what
	started, as := false, ""
	for number, line := range instructions(string(content)) {
		name, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		if name == "FROM" {
			if started {
				named[as] = s
			}
			if started && target != "" && as == target {
				return s, nil
			}
			var base string
			base, as, _ = strings.Cut(rest, " AS ")
			s, started = named[base]
			s, known, started = s.clone(), nil, started || base == "scratch"
			continue
		}
		if !started {
			continue // of another stage
		}
		if name == "ARG" {
			argument, fallback, _ := strings.Cut(rest, "=")
			if value, ok := arguments[argument]; ok {
				fallback = value
			}
			known = append(known, "${"+argument+"}", fallback)
			continue
		}
		if err := s.apply(name, strings.NewReplacer(known...).Replace(rest)); err != nil {
			return Stage{}, fmt.Errorf("%s: instruction %d: %s: %w", path, number+1, name, err)
		}
	}
	switch {
	case target != "" && as != target:
		return Stage{}, fmt.Errorf("%s: it has no stage %s FROM scratch", path, target)
	case !started:
		return Stage{}, fmt.Errorf("%s: the last stage is not FROM scratch", path)
	}
	return s, nil
}

// clone is a stage that may be added to.
func (s Stage) clone() Stage {
	s.Files, s.Config.Labels = slices.Clone(s.Files), maps.Clone(s.Config.Labels)
	return s
}

// instructions are a Dockerfile's, one line each, without comments.
func instructions(text string) []string {
	var all []string
	joined := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		part, continued := strings.CutSuffix(line, "\\")
		joined += part
		if !continued {
			all, joined = append(all, joined), ""
		}
	}
	return all
}

func (s *Stage) apply(name, rest string) error {
	switch name {
	case "LABEL":
		if s.Config.Labels == nil {
			s.Config.Labels = map[string]string{}
		}
		for _, pair := range strings.Fields(rest) {
			key, quoted, _ := strings.Cut(pair, "=")
			value, err := strconv.Unquote(quoted)
			if err != nil {
				return fmt.Errorf("%s must be key=\"value\", without blanks", pair)
			}
			s.Config.Labels[key] = value
		}
	case "COPY":
		return s.copy(strings.Fields(rest))
	case "USER":
		s.Config.User = rest
	case "WORKDIR":
		s.Config.WorkingDir = rest
	case "ENTRYPOINT":
		return json.Unmarshal([]byte(rest), &s.Config.Entrypoint)
	default:
		return fmt.Errorf("the packer does not know it")
	}
	return nil
}

func (s *Stage) copy(words []string) error {
	f := File{}
	flags := len(words) - 2
	for _, flag := range words[:max(flags, 0)] {
		key, value, _ := strings.Cut(flag, "=")
		var err error
		switch key {
		case "--from":
			f.Built = true
		case "--chmod":
			f.Mode, err = strconv.ParseInt(value, 8, 64)
		default:
			err = fmt.Errorf("the packer does not know %s", flag)
		}
		if err != nil {
			return err
		}
	}
	if flags < 1 || f.Mode == 0 || !strings.HasPrefix(words[flags+1], "/") || strings.HasSuffix(words[flags+1], "/") {
		return fmt.Errorf("it must be --chmod=MODE, one file, and its absolute path in the image")
	}
	f.Source, f.Path = words[flags], words[flags+1]
	if slices.ContainsFunc(s.Files, func(have File) bool { return have.Path == f.Path }) {
		return fmt.Errorf("%s is there already", f.Path)
	}
	s.Files = append(s.Files, f)
	return nil
}
