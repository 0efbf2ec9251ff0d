package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestPictureShowsEachStateForAsLongAsItLasted(t *testing.T) {
	svg := picture([]scenario{{name: "node-1", short: "a <b>"}}, map[string][]change{
		"node-1": {{0, stateTainted}, {time.Second, stateVerifying}, {3 * time.Second, stateVerified}},
	}, 10*time.Second)
	for decoder := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
	}
	for _, want := range []string{
		`<rect x="150.0" y="46" width="70.0" height="20" fill="#b6bcc6"/>`,
		`<rect x="220.0" y="46" width="140.0" height="20" fill="#4c8dd6"/>`,
		`<rect x="360.0" y="46" width="490.0" height="20" fill="#4aa564"/>`,
		">verified, 3.0 s<", ">a &lt;b&gt;<",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
}
