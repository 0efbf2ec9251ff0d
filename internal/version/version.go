// Package version says which build a binary is. The Makefile stamps it with -ldflags -X.
package version

import (
	"fmt"
	"runtime"
)

// Set at link time; a plain go build leaves the defaults.
var (
	// Version is the release, from git describe: v1.2.3, or a commit with "-dirty" where the tree was changed.
	Version = "dev"
	// Commit is the full commit hash.
	Commit = "unknown"
	// BuildDate is the time of the sources, SOURCE_DATE_EPOCH or the commit's, in RFC 3339 and UTC: the same sources give
	// the same binary whenever they are built.
	BuildDate = "unknown"
)

// String is what --version prints after the program's name: version, commit, date, Go release and platform.
func String() string {
	return fmt.Sprintf("%s (commit %s, built %s, %s, %s/%s)",
		Version, Commit, BuildDate, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
