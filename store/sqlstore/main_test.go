package sqlstore_test

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }
