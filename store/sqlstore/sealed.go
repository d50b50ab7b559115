package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// This file finds and replaces what is encrypted ("sealed") with a master key, so that an operator can change
// that key. The caller encrypts and decrypts.

// A sealedRow is a row with a sealed column.
type sealedRow struct {
	store.SealedRow
	secret store.Secret
	// text is the sealed column. defaults or result is its decoded value, with what is not sealed.
	text     string
	defaults store.Defaults
	result   *store.ResultDraft
}

// A sealedTable describes the sealed column of a table.
type sealedTable struct {
	// name is the table. key is the column with the id of the master key, empty if nothing is sealed. column
	// is the sealed column. project is the column with the project's id.
	name, key, column, project string
	// inUse is a condition that leaves out rows whose value is no longer used; $2 is the present time.
	inUse string
	// open reads the sealed values of a row into it: from text, or the secret itself. seal returns the
	// column's value with the new ones.
	open func(r *sealedRow) error
	seal func(r *sealedRow) (any, error)
}

// sealedTables describes all tables with sealed columns.
func sealedTables() map[store.SealedTable]sealedTable {
	openHeaders := func(r *sealedRow) error { return decode("headers", r.text, &r.Headers) }
	sealHeaders := func(r *sealedRow) (any, error) { return encode(r.Headers) }
	return map[store.SealedTable]sealedTable{
		store.SealedSecrets: {
			"secrets", "key_id", "ciphertext", "project", ` AND (retired_at = 0 OR retired_at > $2)`,
			func(r *sealedRow) error { r.Secret = &r.secret; return nil },
			func(r *sealedRow) (any, error) { return r.Secret.Ciphertext, nil },
		},
		store.SealedProjects: {
			"projects", "sealed_key", "defaults", "id", "",
			func(r *sealedRow) error {
				err := decode("defaults", r.text, &r.defaults)
				r.Headers = r.defaults.Headers
				return err
			},
			func(r *sealedRow) (any, error) {
				r.defaults.Headers = r.Headers
				return encode(r.defaults)
			},
		},
		store.SealedEndpoints: {"endpoints", "sealed_key", "headers", "project", "", openHeaders,
			sealHeaders},
		// The headers of a callback are a column of requests, not of callbacks.
		store.SealedCallbacks: {"requests", "sealed_key", "headers", "project", "", openHeaders, sealHeaders},
		store.SealedSchedules: {
			"schedules", "sealed_key", "template", "project", "",
			func(r *sealedRow) error { r.Template = r.text; return nil },
			func(r *sealedRow) (any, error) { return r.Template, nil },
		},
		store.SealedAlerts: {
			"alerts", "sealed_key", "sink", "project", "",
			func(r *sealedRow) error { r.Template = r.text; return nil },
			func(r *sealedRow) (any, error) { return r.Template, nil },
		},
		store.SealedPolls: {
			"polls", "sealed_key", "on_result", "project", "",
			func(r *sealedRow) (err error) {
				r.result, err = decodeResult(r.text)
				if err != nil {
					return err
				}
				if r.result == nil {
					return errors.New("a poll without a result callback has nothing sealed")
				}
				r.Headers = r.result.Callback.Headers
				return nil
			},
			func(r *sealedRow) (any, error) {
				r.result.Callback.Headers = r.Headers
				return encodeResult(r.result)
			},
		},
	}
}

// rows reads rows of the table and opens them.
func (s *sealedTable) rows(q sqldb.Querier, table store.SealedTable, which string,
	args ...any) ([]sealedRow, error) {
	rows, err := sqldb.Select(q, func(r *sealedRow) sqldb.Columns {
		columns := sqldb.Columns{col(s.key, &r.KeyID), col("id", &r.ID), col(s.project, &r.Project)}
		if table == store.SealedSecrets {
			return append(columns, secretColumns(&r.secret)...)
		}
		return append(columns, col(s.column, &r.text))
	}, `FROM `+s.name+` WHERE `+s.key+which, args...)
	for i := range rows {
		rows[i].Table = table
		if err := s.open(&rows[i]); err != nil {
			return nil, fmt.Errorf("open %s %s: %w", table, rows[i].ID, err)
		}
	}
	return rows, err
}

// write stores the new sealed value and key id of a row.
func (s *sealedTable) write(t *tx, r *sealedRow) error {
	text, err := s.seal(r)
	if err == nil {
		_, err = t.Exec(`UPDATE `+s.name+` SET `+s.key+` = $1, `+s.column+` = $2
			WHERE `+s.project+` = $3 AND id = $4`, r.KeyID, text, r.Project, r.ID)
	}
	return named(fmt.Sprintf("write %s %s", r.Table, r.ID), err)
}

// SealedKeys returns one row of each table for each master key that the table uses. Secrets that ended before
// now are left out; zero includes all.
func (db *DB) SealedKeys(ctx context.Context, now int64) ([]store.SealedRow, error) {
	ctx, cancel := context.WithTimeout(ctx, db.sql.Limits.Read)
	defer cancel()
	return ReadSealedKeys(ctx, db.sql.Reads, now)
}

// ReadSealedKeys is SealedKeys for a caller that has no DB, and without its time limit.
func ReadSealedKeys(ctx context.Context, source sqldb.Source, now int64) ([]store.SealedRow, error) {
	read := sqldb.ReadFrom(ctx, source, "read sealed keys")
	var found []store.SealedRow
	for _, table := range store.SealedTables() {
		s := sealedTables()[table]
		// Each statement finds the next key in the index, so that it reads one row of each key.
		for after, more := "", true; more; {
			args := []any{after}
			if s.inUse != "" {
				args = append(args, now)
			}
			rows, err := s.rows(read, table, ` > $1 AND `+s.key+` <> ''`+s.inUse+` ORDER BY `+s.key+
				`, id LIMIT 1`, args...)
			if err != nil {
				return nil, err
			}
			more = len(rows) > 0
			if more {
				found, after = append(found, rows[0].SealedRow), rows[0].KeyID
			}
		}
	}
	return found, nil
}

// CountSealed returns how many rows of a table are sealed with a master key, counting up to most.
func (db *DB) CountSealed(ctx context.Context, table store.SealedTable, keyID string, most int) (int, error) {
	s := sealedTables()[table]
	n, _, err := sqldb.Value[int](db.read(ctx, "count sealed rows"), `SELECT COUNT(*) FROM (
			SELECT 1 AS one FROM `+s.name+`
			WHERE `+s.key+` = $1 AND `+s.key+` <> '' LIMIT $2) AS part`, keyID, most)
	return n, err
}

// Reseal lets change encrypt again up to limit rows that are sealed with a master key. It takes the rows with
// ids above after, in the order of their ids. The rows are locked, written and audited in one transaction. A
// row for which change returns an error stays as it is and counts as failed. After a crash the caller repeats
// the page; rows with a new key are not found again.
func (db *DB) Reseal(
	ctx context.Context, table store.SealedTable, keyID, after string, limit int,
	change func(*store.SealedRow) error, now int64, by store.Actor,
) (store.SealedPage, error) {
	s := sealedTables()[table]
	return changed(ctx, db.changeLong, fmt.Sprintf("reseal %s", table),
		func(t *tx) (page store.SealedPage, err error) {
			object := ""
			rows, err := s.rows(t, table, ` = $1 AND `+s.key+
				` <> '' AND id > $2 ORDER BY id LIMIT $3 FOR UPDATE`, keyID, after, limit)
			if err != nil {
				return page, named("read sealed rows", err)
			}
			for i := range rows {
				r := &rows[i]
				page.Last = r.ID
				if err := change(&r.SealedRow); err != nil {
					page.Failed++
					continue
				}
				if err := s.write(t, r); err != nil {
					return page, err
				}
				page.Done++
				object = r.KeyID
			}
			if page.Done == 0 {
				return page, nil
			}
			return page, t.auditChange(store.DefaultProject, "secret.reencrypt", object, now, by,
				changeOf("key_id", keyID, object),
				fields{"table": table, "done": page.Done, "failed": page.Failed})
		})
}
