package recovery_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

func TestEachHandsOnAPanic(t *testing.T) {
	done := make([]bool, 3)
	p := recovery.Catch(func() {
		recovery.Each(len(done), func(i int) {
			// Deeper still, as in a check that has an address of each host tried.
			recovery.Each(1, func(int) {
				if i == 1 {
					panic("oops")
				}
				done[i] = true
			})
		})
	})
	if p == nil || p.Value != "oops" || !strings.HasPrefix(p.Place, "recovery_test.go:") || p.Reason() != check.ReasonInternal {
		t.Errorf("caught %+v", p)
	}
	if !done[0] || !done[2] {
		t.Error("the others were not waited for")
	}
}

func TestTry(t *testing.T) {
	fine := errors.New("an error is handed through")
	if err := recovery.Try(func() error { return fine }); !errors.Is(err, fine) {
		t.Errorf("got %v", err)
	}
	var p *recovery.Panic
	if err := recovery.Try(func() error { panic("oops") }); !errors.As(err, &p) {
		t.Errorf("got %v", err)
	}
	ended := make(chan *recovery.Panic)
	recovery.Go(func() { panic("oops") }, func(p *recovery.Panic) { ended <- p })
	if p := <-ended; p.Value != "oops" {
		t.Errorf("got %v", p)
	}
}

// TestGoroutinesStartHere: a goroutine that is started otherwise can end the worker with the
// code of a configuration error.
func TestGoroutinesStartHere(t *testing.T) {
	files := 0
	for _, root := range []string{"../../../cmd/worker", "../../result", ".."} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "recovery" || strings.HasSuffix(d.Name(), "test")):
				return filepath.SkipDir
			case d.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"):
				return nil
			}
			files++
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok {
					t.Errorf("%s starts a goroutine itself", set.Position(g.Pos()))
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 40 {
		t.Errorf("only %d files were looked at", files)
	}
}
