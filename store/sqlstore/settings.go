package sqlstore

import (
	"errors"
	"fmt"
)

// Changes of settings (of projects and their presets, of endpoints and of lanes) are numbered together, and every process follows them
// by their numbers. The row of the number is locked from before the first change of a transaction until its commit, so a reader
// who has seen one change has seen, or sees next, all that have a lower number: none comes later.
//
// Locks are taken in this order, or two transactions could wait for each other: the project's row, the number, endpoints by id, lanes.

// lockSettings keeps other transactions from changing settings until this one ends.
func (t *tx) lockSettings() error {
	if t.settings != nil {
		return nil
	}
	var found *int64
	if err := t.each(func(rows scanner) error {
		found = new(int64)
		return rows.Scan(found)
	}, `SELECT value FROM versions WHERE name = 'settings'`+t.db.dialect.forUpdate); err != nil {
		return fmt.Errorf("lock settings: %w", err)
	}
	if found == nil {
		return errors.New("lock settings: the row is not there")
	}
	t.settings, t.settled = found, *found
	return nil
}

// nextVersion numbers a change of settings.
func (t *tx) nextVersion() (int64, error) {
	if err := t.lockSettings(); err != nil {
		return 0, err
	}
	*t.settings++
	return *t.settings, nil
}

// writeVersion keeps the last number that was given.
func (t *tx) writeVersion() error {
	if t.settings == nil || *t.settings == t.settled {
		return nil
	}
	if err := t.later(`UPDATE versions SET value = $1 WHERE name = 'settings'`, *t.settings); err != nil {
		return fmt.Errorf("write version: %w", err)
	}
	return nil
}
