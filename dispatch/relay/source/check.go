package source

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// A spec is what a table must be.
type spec struct {
	// name is as configured, quoted for SQL.
	name, quoted string
	columns      []column
	// key is the primary key.
	key    string
	rights []string
}

// A column has one of some types. The first one is that of the DDL.
type column struct {
	name  string
	types []string
}

// A found is what a check found of a table.
type found struct {
	types map[string]string // by column
	key   string
	// lacks are the missing rights.
	lacks []string
}

// specs returns what the tables of the source must be.
func (s *Source) specs() []spec {
	text, bytes, at := []string{"text", "character varying"}, []string{"bytea"}, "timestamp with time zone"
	id, code, request := text, text, text
	if s.dialect == MySQL {
		id, code, at = []string{"varchar"}, []string{"varchar"}, "timestamp"
		bytes = []string{"mediumblob", "longblob", "blob"}
		request = append(slices.Clone(bytes), mysqlTexts...)
		text = mysqlTexts
	}
	common := []column{
		{"seq", []string{"bigint"}}, {"id", id}, {"kind", id}, {"request", request}, {"body", bytes},
		{"created_at", []string{at}},
	}
	name := s.tables.name
	specs := []spec{
		{name, s.tables.outbox, common, "seq", []string{"SELECT", "DELETE"}},
		{name + "_refused", s.tables.refused, append(slices.Clone(common), column{"code", code},
			column{"problem", text}, column{"refused_at", []string{at}}), "id, seq",
			[]string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
		{name + "_done", s.tables.done, append(slices.Clone(common), column{"done_at", []string{at}}),
			keptOrder, []string{"SELECT", "INSERT", "DELETE"}},
	}
	if !s.keep {
		specs = specs[:2]
	}
	return specs
}

// mysqlTexts are types of MySQL that lose characters outside strict mode.
var mysqlTexts = []string{"text", "mediumtext", "longtext"}

func (s *Source) checker(db session) *checker {
	if s.dialect == MySQL {
		return &checker{Source: s, db: db, server: (*checker).mysqlServer, table: (*checker).mysqlTable}
	}
	return &checker{Source: s, db: db, server: (*checker).postgresServer, table: (*checker).postgresTable}
}

// check runs all checks. It checks no table of a server that it cannot read anyway.
func (s *Source) check(ctx context.Context, db session) ([]Finding, error) {
	c := s.checker(db)
	if err := c.server(c, ctx); err != nil {
		return nil, err
	}
	if failed(c.findings) {
		return c.findings, nil
	}
	for _, t := range s.specs() {
		f, err := c.table(c, ctx, t)
		if err != nil {
			return nil, err
		}
		if f != nil {
			c.compare(t, f)
		}
	}
	return c.findings, nil
}

// A checker collects findings.
type checker struct {
	*Source
	db       session
	findings []Finding

	// server checks what concerns all tables. table reads a table; nil: there is none to compare.
	server func(*checker, context.Context) error
	table  func(*checker, context.Context, spec) (*found, error)
}

func (c *checker) wrong(cure, format string, args ...any) {
	c.findings = append(c.findings, Finding{LevelError, fmt.Sprintf(format, args...), cure})
}

func (c *checker) warn(cure, format string, args ...any) {
	c.findings = append(c.findings, Finding{LevelWarning, fmt.Sprintf(format, args...), cure})
}

// rows reads rows with columns of text.
func (c *checker) rows(ctx context.Context, parts ...any) (rows [][]string, err error) {
	err = c.db.read(ctx, c.dialect.compose(parts...), func(v columns) {
		row := make([]string, len(v.values))
		for i := range row {
			row[i] = v.text(i)
		}
		rows = append(rows, row)
	})
	return rows, err
}

// ddl is the command that prints the tables.
func (c *checker) ddl() string {
	command := "dispatcher relay ddl --dialect " + string(c.dialect)
	if c.tables.name != DefaultTable {
		command += " --table " + c.tables.name
	}
	if c.keep {
		command += " --keep"
	}
	return command
}

// missing adds the finding that a table cannot be seen.
func (c *checker) missing(t spec) {
	c.wrong("create it with the output of: "+c.ddl(),
		"table %s does not exist, or the user %s has no right on it", t.name, c.user)
}

// failed reports whether a finding is an error.
func failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Level == LevelError })
}

// compare adds the findings of a table.
func (c *checker) compare(t spec, f *found) {
	for _, want := range t.columns {
		got, exists := f.types[want.name]
		switch {
		case !exists:
			c.wrong("add it as in the output of: "+c.ddl(), "table %s has no column %s", t.name, want.name)
		case !slices.Contains(want.types, got):
			c.wrong("change it to "+want.types[0], "column %s of table %s has the type %s", want.name, t.name,
				got)
		case c.dialect == MySQL && want.name == "request" && slices.Contains(mysqlTexts, got):
			c.warn("change it to "+want.types[0], "column request of table %s has the type %s: outside "+
				"strict mode the server stores ? for characters that it does not know", t.name, got)
		}
	}
	if f.key != t.key {
		c.wrong("make it ("+t.key+")", "the primary key of table %s is (%s)", t.name, f.key)
	}
	if len(f.lacks) > 0 {
		rights := strings.Join(f.lacks, ", ")
		c.wrong("GRANT "+rights+" ON "+t.quoted+" TO "+c.dialect.quoteUser(c.user),
			"the user %s has no right to %s on table %s", c.user, rights, t.name)
	}
}
