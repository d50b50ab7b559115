package relay

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// rangePattern is a range of numbers, such as {00..31}. Leading zeros of the first give the width.
var rangePattern = regexp.MustCompile(`\{([0-9]{1,4})\.\.([0-9]{1,4})\}`)

// expand returns one setting a number of the range in name, dsn, password_file, table and origin, or s
// itself. A name without the range gets "-NUMBER" at its end.
func (s *setting) expand() (list []setting, field string, err error) {
	var found []string
	fields := []struct {
		name string
		text *string
	}{
		{"name", &s.Name}, {"dsn", &s.DSN}, {"password_file", &s.PasswordFile}, {"table", &s.Table},
		{"origin", &s.Origin},
	}
	for _, f := range fields {
		for _, r := range rangePattern.FindAllString(*f.text, -1) {
			if len(found) > 0 && found[0] != r {
				return nil, f.name, fmt.Errorf("has the range %s beside %s; write one range a source", r,
					found[0])
			}
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return []setting{*s}, "", nil
	}
	ends := rangePattern.FindStringSubmatch(found[0])
	first, _ := strconv.Atoi(ends[1]) // digits
	last, _ := strconv.Atoi(ends[2])
	if last < first || last-first >= store.MaxRelaySources {
		return nil, "", fmt.Errorf("has the range %s, which must ascend and have at most %d numbers",
			found[0], store.MaxRelaySources)
	}
	for n := first; n <= last; n++ {
		number := fmt.Sprintf("%0*d", len(ends[1]), n)
		one := *s
		if !strings.Contains(one.Name, found[0]) {
			one.Name += "-" + found[0]
		}
		for _, text := range []*string{&one.Name, &one.DSN, &one.PasswordFile, &one.Table, &one.Origin} {
			*text = strings.ReplaceAll(*text, found[0], number)
		}
		list = append(list, one)
	}
	return list, "", nil
}

// duplicates finds sources with one name in a project, and tables that two sources would read.
type duplicates struct{ names, tables map[string]string }

func newDuplicates() *duplicates {
	return &duplicates{names: make(map[string]string), tables: make(map[string]string)}
}

// add notes a source of the element at, and returns what it has in common with an earlier one.
func (d *duplicates) add(at string, c *SourceConfig) (wrong []store.FieldError) {
	if first, twice := d.names[c.Label()]; twice {
		wrong = invalid("name", "is the same as that of "+first+": "+c.Name)
	}
	d.names[c.Label()] = at
	table := c.DSN + " " + c.Table
	if first, twice := d.tables[table]; twice {
		wrong = append(wrong, store.FieldError{
			Field:   "table",
			Message: "is the same as that of " + first + ", and two sources send each row twice",
		})
	}
	d.tables[table] = at
	return wrong
}
