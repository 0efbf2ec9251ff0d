package remediation_test

import (
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/world"
)

func TestMain(m *testing.M) { world.Main(m) }
