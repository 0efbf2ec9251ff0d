// Command pictures draws the pictures of the documentation: each source in docs/pictures (*.d2, https://d2lang.com)
// becomes an SVG beside it, which a browser shows light or dark. The source of the guards is written first, from the
// guards themselves.
//
//	go run ./test/docs/pictures D2    with the path of the program d2, as make docs does
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// folder has the sources and the pictures; its path is relative to the repository's root.
const folder = "docs/pictures"

// Files that all pictures share.
const (
	shared = "style.d2"
	sheet  = "style.css"
	guards = "guards.d2"
	pin    = "test/tools/d2/go.mod"
)

// options of d2: the picture's own size, and space between states that is small and yet holds the labels.
var options = []string{"--scale", "1", "--omit-version", "--no-xml-tag", "--elk-nodeNodeBetweenLayers", "30",
	"--elk-edgeNodeBetweenLayers", "24", "--elk-padding", "[top=46,left=24,bottom=24,right=24]"}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "pictures D2")
		os.Exit(2)
	}
	if err := draw(".", os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func draw(root, d2 string) error {
	text, err := guardsSource()
	if err != nil {
		return err
	}
	//nolint:gosec // a file for everyone to read
	if err := os.WriteFile(filepath.Join(root, folder, guards), []byte(text), 0o644); err != nil {
		return err
	}
	names, err := sources(root)
	if err != nil {
		return err
	}
	for _, name := range names {
		svg := filepath.Join(root, folder, name+".svg")
		if file, err := os.ReadFile(svg); err == nil && upToDate(root, name, file) == nil {
			continue
		}
		if err := drawOne(root, d2, name, svg); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// sources names the sources, without their ending.
func sources(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, folder, "*.d2"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		if base := filepath.Base(file); base != shared {
			names = append(names, strings.TrimSuffix(base, ".d2"))
		}
	}
	return names, nil
}

func drawOne(root, d2, name, svg string) error {
	source := filepath.Join(root, folder, name+".d2")
	//nolint:gosec // make docs names the program
	cmd := exec.Command(d2, append(options, "--stdout-format", "svg", source, "-")...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	picture, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	css, err := os.ReadFile(filepath.Join(root, folder, sheet))
	if err != nil {
		return err
	}
	drawn, err := withStyle(picture, css)
	if err != nil {
		return err
	}
	stamp, err := stampOf(root, name, drawn)
	if err != nil {
		return err
	}
	return os.WriteFile(svg, append(drawn, stamp...), 0o644) //nolint:gosec // a picture for everyone to see
}

// withStyle adds the style sheet at the end, where it overrides the theme's colours.
func withStyle(picture, css []byte) ([]byte, error) {
	end := bytes.LastIndex(picture, []byte("</svg></svg>"))
	if end < 0 {
		return nil, errors.New("the program's answer does not end as an SVG does")
	}
	var b bytes.Buffer
	b.Write(picture[:end])
	fmt.Fprintf(&b, "<style>\n%s</style></svg></svg>\n", css)
	return b.Bytes(), nil
}

// stampOf is the picture's last line: checksums of what it is drawn from, and of the picture itself.
func stampOf(root, name string, drawn []byte) (string, error) {
	var from bytes.Buffer
	for _, file := range []string{filepath.Join(folder, name+".d2"), filepath.Join(folder, shared),
		filepath.Join(folder, sheet), pin} {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		if file == pin {
			content = regexp.MustCompile(`oss\.terrastruct\.com/d2 v\S+`).Find(content)
		}
		fmt.Fprintf(&from, "%s %d\n%s\n", filepath.Base(file), len(content), content)
	}
	fmt.Fprintln(&from, options)
	return fmt.Sprintf("<!-- drawn from %x, picture %x -->\n", sha256.Sum256(from.Bytes()), sha256.Sum256(drawn)), nil
}

// upToDate returns an error if the picture is not what make docs draws of its source.
func upToDate(root, name string, file []byte) error {
	at := max(0, bytes.LastIndex(file, []byte("<!-- drawn from ")))
	want, err := stampOf(root, name, file[:at])
	if err != nil {
		return err
	}
	if string(file[at:]) != want {
		return fmt.Errorf("%s/%s.svg is not what its source says: make docs", folder, name)
	}
	return nil
}
