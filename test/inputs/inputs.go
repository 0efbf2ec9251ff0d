// Package inputs tells go test which files a test's result depends on, in addition to those that the test opens itself.
// If nothing has changed, go test returns the result of an earlier run. It knows the files that the test opens. It does
// not know the files that a program opens which the test starts, such as helm or go build.
package inputs

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Track makes the result of the test program depend on these files, and on all that is in these folders (names, sizes and times of
// change), but for hidden folders. Only what lies inside the module counts (go help test, "caching"). It takes a test because what
// TestMain opens before the tests begin is not taken down.
func Track(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		err := filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && len(entry.Name()) > 1 && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." {
				return fs.SkipDir
			}
			return err // a folder was read, which is what go test takes down
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
