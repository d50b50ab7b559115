package migrations_test

import (
	"slices"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/migrations"
)

func TestEveryFileHasItsPair(t *testing.T) {
	t.Parallel()
	bad, err := migrations.Unpaired()
	if err != nil {
		t.Fatal(err)
	}
	if len(bad) > 0 {
		t.Errorf("migrations without their other half, or with a number used twice: %v", bad)
	}
}

func TestForeignNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ database, foreign, own string }{
		{migrations.SQLite, "0001_core.postgres.sql", "0001_core.sqlite.sql"},
		{migrations.Postgres, "0001_core.sqlite.sql", "0001_core.postgres.sql"},
	} {
		names, err := migrations.ForeignNames(tt.database)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(names, tt.foreign) || slices.Contains(names, tt.own) {
			t.Errorf("ForeignNames(%q) = %v", tt.database, names)
		}
	}
	if _, err := migrations.ForeignNames("oracle"); err == nil {
		t.Error("an unknown database got no error")
	}
}
