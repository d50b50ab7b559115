package migrations

import (
	"slices"
	"strings"
	"testing"
)

func TestFor(t *testing.T) {
	t.Parallel()
	sqlite, foreign, err := For(SQLite)
	if err != nil {
		t.Fatal(err)
	}
	postgres, _, err := For(Postgres)
	if err != nil {
		t.Fatal(err)
	}
	if stems(sqlite)[0] != "0001_schema" || !slices.Equal(stems(sqlite), stems(postgres)) {
		t.Errorf("SQLite has the migrations %v, PostgreSQL %v", stems(sqlite), stems(postgres))
	}
	if !slices.Contains(foreign, "0001_schema.postgres.sql") || slices.Contains(foreign, sqlite[0].Name) {
		t.Errorf("not for SQLite: %v", foreign)
	}
	if sqlite[0].Version != 1 || sqlite[0].Hash == postgres[0].Hash {
		t.Errorf("the first migrations: %+v, %+v", sqlite[0], postgres[0])
	}
	if _, _, err := For("oracle"); err == nil {
		t.Error("an unknown database gave no error")
	}
}

// stems returns the names of files up to the first dot, without the name of the database.
func stems(files []File) []string {
	names := make([]string, len(files))
	for i, f := range files {
		names[i], _, _ = strings.Cut(f.Name, ".")
	}
	return names
}

func TestHash(t *testing.T) {
	t.Parallel()
	want := hash("CREATE TABLE a (\n\tid TEXT\n);\n")
	commented := "-- +goose Up\r\n-- A table.\r\nCREATE TABLE a ( -- of ids\r\n    id TEXT\r\n);"
	if hash(commented) != want {
		t.Error("comments and white space change the hash")
	}
	if hash("CREATE TABLE a (id TEXT);") == want || hash("CREATE TABLE a ( id TEX );") == want {
		t.Error("other statements have the same hash")
	}
}
