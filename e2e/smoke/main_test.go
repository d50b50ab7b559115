package smoke

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
