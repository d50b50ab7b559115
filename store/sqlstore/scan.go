package sqlstore

// A scanner is one row that a statement returned: *sql.Rows, or a liteRow.
type scanner interface {
	// Scan copies the row's columns to what dest points to.
	Scan(dest ...any) error
}
