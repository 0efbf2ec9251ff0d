package result

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// A form's cue saves time, and must hide no secret: it gives what the expressions give without it.
func TestCuesHideNoSecret(t *testing.T) {
	pieces := []string{"https://", "HTTP://", "user:pass@", "host/", " ", ":", "=", `"`, "Authorization", "PROXY-AUTHORIZATION", "bearer", "BeaReR",
		"basic", "BAſIC", "dXNlcjpwYXNz", "eyJhbGciOiJSUzI1NiJ9", "EYJ", ".", "c2lnbmF0dXJl", "token", "toKen", "paſſword", "API_KEY", "s3cret", "\n", "\xff", "no answer"}
	rng, secrets := rand.New(rand.NewPCG(1, 1)), make([]int, len(secretForms)) //nolint:gosec // no secret
	for range 100_000 {
		var b strings.Builder
		for range 1 + rng.IntN(8) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		want := b.String()
		for i, form := range secretForms {
			if form.pattern.MatchString(want) {
				secrets[i]++
			}
			want = form.pattern.ReplaceAllString(want, form.replacement)
		}
		if got := redact(b.String()); got != want {
			t.Fatalf("%q becomes %q, want %q", b.String(), got, want)
		}
	}
	for i, n := range secrets {
		if n < 50 {
			t.Errorf("%d texts had a secret of form %s", n, secretForms[i].pattern)
		}
	}
}

// BenchmarkSanitise is a message without a secret, as most are.
func BenchmarkSanitise(b *testing.B) {
	for b.Loop() {
		Sanitise("check dns: NoAnswer: kubernetes.default.svc.cluster.local: no answer from 10.96.0.10:53 within 2s")
	}
}
