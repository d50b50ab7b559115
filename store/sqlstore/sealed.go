package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A sealedTable says how the sealed columns of a table are read and written.
type sealedTable struct {
	// columns are what scan reads. key is the column with the id of the master key; it is empty where nothing
	// is sealed.
	columns, key string
	// and leaves out rows that are not in use at $2.
	and  string
	scan func(rows scanner, r *store.SealedRow) (kept any, err error)
	// write stores what the row has now. kept is what scan returned beside it.
	write func(t *tx, r *store.SealedRow, kept any) error
}

func sealedTables() map[store.SealedTable]sealedTable {
	return map[store.SealedTable]sealedTable{
		store.SealedSecrets:   {secretColumns, "key_id", ` AND (retired_at = 0 OR retired_at > $2)`, scanSealedSecret, writeSealedSecret},
		store.SealedProjects:  {"id, id, defaults", "sealed_key", "", scanSealedDefaults, writeSealedDefaults},
		store.SealedEndpoints: {"id, project, headers", "sealed_key", "", scanSealedHeaders, writeSealedHeaders},
		store.SealedSchedules: {"id, project, template", "sealed_key", "", scanSealedTemplate, writeSealedTemplate},
		store.SealedPolls:     {"id, project, on_result", "sealed_key", "", scanSealedResult, writeSealedResult},
		store.SealedCallbacks: {
			"id, project, headers", "sealed_key", "", scanSealedHeaders, writeSealedRequest,
		},
	}
}

// inSQL is the name of the table that has what is sealed.
func inSQL(table store.SealedTable) string {
	if table == store.SealedCallbacks {
		return "requests"
	}
	return string(table)
}

func scanSealedSecret(rows scanner, r *store.SealedRow) (any, error) {
	s, err := scanSecret(rows)
	r.ID, r.Project, r.Secret = s.ID, s.Project, &s
	return nil, err
}

func writeSealedSecret(t *tx, r *store.SealedRow, _ any) error {
	_, err := t.exec(`UPDATE secrets SET key_id = $1, ciphertext = $2 WHERE id = $3`, r.KeyID, r.Secret.Ciphertext, r.ID)
	return err
}

func scanSealedHeaders(rows scanner, r *store.SealedRow) (any, error) {
	var text string
	if err := rows.Scan(&r.ID, &r.Project, &text); err != nil {
		return nil, err
	}
	return nil, decode("headers", text, &r.Headers)
}

func writeSealedHeaders(t *tx, r *store.SealedRow, _ any) error {
	text, err := encode(r.Headers)
	if err != nil {
		return err
	}
	return t.writeSealed(r, "headers", text)
}

func writeSealedRequest(t *tx, r *store.SealedRow, _ any) error {
	text, err := encode(r.Headers)
	if err != nil {
		return err
	}
	_, err = t.exec(`UPDATE requests SET sealed_key = $1, headers = $2 WHERE project = $3 AND id = $4`,
		r.KeyID, text, r.Project, r.ID)
	return err
}

func scanSealedDefaults(rows scanner, r *store.SealedRow) (any, error) {
	var text string
	if err := rows.Scan(&r.ID, &r.Project, &text); err != nil {
		return nil, err
	}
	var d store.Defaults
	err := decode("defaults", text, &d)
	r.Headers = d.Headers
	return d, err
}

func writeSealedDefaults(t *tx, r *store.SealedRow, kept any) error {
	d := kept.(store.Defaults)
	d.Headers = r.Headers
	text, err := encodeDefaults(d)
	if err != nil {
		return err
	}
	return t.writeSealed(r, "defaults", text)
}

func scanSealedTemplate(rows scanner, r *store.SealedRow) (any, error) {
	return nil, rows.Scan(&r.ID, &r.Project, &r.Template)
}

func writeSealedTemplate(t *tx, r *store.SealedRow, _ any) error {
	return t.writeSealed(r, "template", r.Template)
}

func scanSealedResult(rows scanner, r *store.SealedRow) (any, error) {
	var text string
	if err := rows.Scan(&r.ID, &r.Project, &text); err != nil {
		return nil, err
	}
	d, err := decodeResult(text)
	if err == nil && d == nil {
		err = errors.New("a poll without a result callback has nothing that is sealed")
	}
	if err != nil {
		return nil, err
	}
	r.Headers = d.Callback.Headers
	return d, nil
}

func writeSealedResult(t *tx, r *store.SealedRow, kept any) error {
	d := kept.(*store.ResultDraft)
	d.Callback.Headers = r.Headers
	text, err := encodeResult(d)
	if err != nil {
		return err
	}
	return t.writeSealed(r, "on_result", text)
}

func (t *tx) writeSealed(r *store.SealedRow, column, text string) error {
	_, err := t.exec(`UPDATE `+inSQL(r.Table)+` SET sealed_key = $1, `+column+` = $2 WHERE id = $3`,
		r.KeyID, text, r.ID)
	return err
}

// SealedKeys returns, of every table, one row for each master key that it names. Secrets that ended before
// now are not looked at; with zero all are.
func (db *DB) SealedKeys(ctx context.Context, now int64) ([]store.SealedRow, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	return ReadSealedKeys(ctx, db.read, now)
}

// ReadSealedKeys is SealedKeys for those who have no DB.
func ReadSealedKeys(ctx context.Context, q Querier, now int64) ([]store.SealedRow, error) {
	var found []store.SealedRow
	for _, table := range store.SealedTables() {
		s := sealedTables()[table]
		// Each step finds the next key in the index, so that the many rows of one are not read.
		for after, more := "", true; more; {
			more = false
			args := []any{after}
			if table == store.SealedSecrets {
				args = append(args, now)
			}
			err := queryEach(ctx, q, func(rows scanner) error {
				more = true
				r := store.SealedRow{Table: table}
				_, err := s.scan(prefixed{rows, &r.KeyID}, &r)
				found, after = append(found, r), r.KeyID
				return err
			}, `SELECT `+s.key+`, `+s.columns+` FROM `+inSQL(table)+`
				WHERE `+s.key+` > $1 AND `+s.key+` <> ''`+s.and+`
				ORDER BY `+s.key+`, id LIMIT 1`, args...)
			if err != nil {
				return nil, readError("read sealed keys", err)
			}
		}
	}
	return found, nil
}

// prefixed scans one column more than its caller asks for.
type prefixed struct {
	scanner
	first *string
}

func (p prefixed) Scan(to ...any) error { return p.scanner.Scan(append([]any{p.first}, to...)...) }

// CountSealed returns how many rows of a table are sealed with a master key, counting up to most.
func (db *DB) CountSealed(ctx context.Context, table store.SealedTable, keyID string, most int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	s := sealedTables()[table]
	n := 0
	err := queryEach(ctx, db.read, func(rows scanner) error { return rows.Scan(&n) }, `SELECT COUNT(*) FROM (
			SELECT 1 AS one FROM `+inSQL(table)+`
			WHERE `+s.key+` = $1 AND `+s.key+` <> '' LIMIT $2) AS part`, keyID, most)
	if err != nil {
		return 0, readError("count sealed rows", err)
	}
	return n, nil
}

// Reseal has change re-encrypt the rows of a table that are sealed with a master key, in the order of their
// ids from after on, at most limit. It is one transaction, and one entry of the audit at now. A row that
// change refuses stays as it was.
func (db *DB) Reseal(
	ctx context.Context, table store.SealedTable, keyID, after string, limit int,
	change func(*store.SealedRow) error, now int64, by store.Actor,
) (store.SealedPage, error) {
	s := sealedTables()[table]
	var page store.SealedPage
	err := db.alone(ctx, false, db.groupLimit(limit), func(t *tx) error {
		page = store.SealedPage{}
		var changed auditDiff
		object := ""
		type opened struct {
			row  store.SealedRow
			kept any
		}
		var rows []opened
		if err := t.each(func(scan scanner) error {
			o := opened{row: store.SealedRow{Table: table}}
			var err error
			o.kept, err = s.scan(prefixed{scan, &o.row.KeyID}, &o.row)
			rows = append(rows, o)
			return err
		}, `SELECT `+s.key+`, `+s.columns+` FROM `+inSQL(table)+`
			WHERE `+s.key+` = $1 AND `+s.key+` <> '' AND id > $2
			ORDER BY id LIMIT $3`+t.db.dialect.forUpdate, keyID, after, limit); err != nil {
			return fmt.Errorf("read sealed rows: %w", err)
		}
		for i := range rows {
			r := &rows[i].row
			page.Last = r.ID
			if err := change(r); err != nil {
				page.Failed++
				continue
			}
			if err := s.write(t, r, rows[i].kept); err != nil {
				return fmt.Errorf("write %s %s: %w", table, r.ID, err)
			}
			page.Done++
			changed.before, changed.after = map[string]any{"key_id": keyID}, map[string]any{"key_id": r.KeyID}
			object = r.KeyID
		}
		if page.Done == 0 {
			return nil
		}
		return t.auditChange(store.DefaultProject, actionReencrypt, object, now, by, changed,
			map[string]any{"table": table, "done": page.Done, "failed": page.Failed})
	})
	if err != nil {
		return store.SealedPage{}, fmt.Errorf("reseal %s: %w", table, err)
	}
	return page, nil
}
