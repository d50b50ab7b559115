// Package migrations has the SQL schema as forward-only migrations, embedded in the binary.
//
// A file NNNN_name.sql runs on both databases. If the databases need different statements, there is a pair of
// files, NNNN_name.sqlite.sql and NNNN_name.postgres.sql. A test of package sqlstore checks that both have
// the same tables and columns. Until release 0.1.0 there is one pair, and a change of the schema edits it.
// After that, released files do not change. Old and new processes must be able to run at the same time. So a
// migration may remove a column, for example, only when no supported version of the program needs it.
//
// The package imports no driver. Package store/sqlstore applies the migrations.
package migrations

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// Files has the migrations of both databases.
//
//go:embed *.sql
var Files embed.FS

// The names of the databases, as used in the names of paired files.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// A File is one migration for one database.
type File struct {
	Version int64
	Name    string // the name of the file
	// Hash is the SHA-256 of the file's statements in hexadecimal, without comments and white space.
	Hash string
}

// For returns the migrations for a database, in order, and the names of the files for the other database. The
// database must be [SQLite] or [Postgres].
func For(database string) (own []File, foreign []string, err error) {
	other := SQLite
	switch database {
	case SQLite:
		other = Postgres
	case Postgres:
	default:
		return nil, nil, fmt.Errorf("no migrations for database %q", database)
	}
	names, err := fs.Glob(Files, "*.sql")
	if err != nil {
		return nil, nil, fmt.Errorf("list migrations: %w", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "."+other+".sql") {
			foreign = append(foreign, name)
			continue
		}
		file, err := read(name)
		if err != nil {
			return nil, nil, err
		}
		own = append(own, file)
	}
	return own, foreign, nil
}

func read(name string) (File, error) {
	number, _, _ := strings.Cut(name, "_")
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return File{}, fmt.Errorf("migration %s has no number: %w", name, err)
	}
	text, err := Files.ReadFile(name)
	if err != nil {
		return File{}, fmt.Errorf("read migration: %w", err)
	}
	return File{Version: version, Name: name, Hash: hash(string(text))}, nil
}

var comment = regexp.MustCompile(`--.*`)

// hash leaves out comments and white space, so that a comment can be corrected after a release.
func hash(text string) string {
	statements := strings.Join(strings.Fields(comment.ReplaceAllString(text, "")), " ")
	sum := sha256.Sum256([]byte(statements))
	return hex.EncodeToString(sum[:])
}
