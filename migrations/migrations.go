// Package migrations holds the SQL schema as forward-only migrations, embedded in the binary.
//
// A file is named NNNN_name.sql and runs on both databases; where the two need their own text there is a pair,
// NNNN_name.sqlite.sql and NNNN_name.postgres.sql, and a test of package sqlstore holds the two to the same tables and
// columns. Every migration expands: what an older process needs is taken away only when none can run any more, so an
// old and a new process work side by side.
//
// The package knows no driver and applies nothing itself.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

// Files are all migrations, of both databases.
//
//go:embed *.sql
var Files embed.FS

// The names of the databases, as they stand in the names of paired files.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// ForeignNames returns the names of the files that are not for the database, to be left out. It returns an error for a
// database that is neither [SQLite] nor [Postgres].
func ForeignNames(database string) ([]string, error) {
	var other string
	switch database {
	case SQLite:
		other = Postgres
	case Postgres:
		other = SQLite
	default:
		return nil, fmt.Errorf("no migrations for database %q", database)
	}
	names, err := fs.Glob(Files, "*."+other+".sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	return names, nil
}

// Unpaired returns the names of files that stand for one database only while the other has none of that number and
// name, and of files whose number is used twice. It is empty for a sound set.
func Unpaired() ([]string, error) {
	names, err := fs.Glob(Files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	have := make(map[string]bool, len(names))
	for _, name := range names {
		have[name] = true
	}
	var bad []string
	stems := make(map[string]string)
	for _, name := range names {
		stem := strings.TrimSuffix(name, ".sql")
		if base, ok := strings.CutSuffix(stem, "."+SQLite); ok {
			stem = base
			if !have[base+"."+Postgres+".sql"] {
				bad = append(bad, name)
			}
		} else if base, ok := strings.CutSuffix(stem, "."+Postgres); ok {
			stem = base
			if !have[base+"."+SQLite+".sql"] {
				bad = append(bad, name)
			}
		}
		number, _, _ := strings.Cut(stem, "_")
		if first, ok := stems[number]; ok && first != stem {
			bad = append(bad, name)
		}
		stems[number] = stem
	}
	return bad, nil
}
