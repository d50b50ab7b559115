// Package migrations holds the SQL schema as forward-only migrations, embedded in the binary.
//
// A file is named NNNN_name.sql and runs on both databases; where the two need their own text there is a
// pair, NNNN_name.sqlite.sql and NNNN_name.postgres.sql, and a test of package sqlstore holds the two to the
// same tables and columns. Until release 0.1.0 there is one pair, and a change of the schema edits it. From
// then on a released file does not change, and every migration expands: what an older process needs is taken
// away only when none can run any more, so an old and a new process work side by side.
//
// The package knows no driver and applies nothing itself.
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

// Files are all migrations, of both databases.
//
//go:embed *.sql
var Files embed.FS

// The names of the databases, as they stand in the names of paired files.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// A File is one migration for one database.
type File struct {
	Version int64
	Name    string // of the file
	// Hash is the SHA-256 of the file's statements in hexadecimal. Comments and white space do not count.
	Hash string
}

// For returns the migrations for a database, the first one first, and the names of the files that are not for
// it. It returns an error for a database that is neither [SQLite] nor [Postgres].
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

// hash is that of the statements alone, so that a comment can be corrected after a release.
func hash(text string) string {
	statements := strings.Join(strings.Fields(comment.ReplaceAllString(text, "")), " ")
	sum := sha256.Sum256([]byte(statements))
	return hex.EncodeToString(sum[:])
}
