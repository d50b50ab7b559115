package accept

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func Invalid(field, message string) error {
	return &store.InvalidError{Fields: []store.FieldError{{Field: field, Message: message}}}
}

// Under adds findings about the parts of a field.
func (f *Findings) Under(field string, wrong []store.FieldError) {
	for _, w := range wrong {
		switch {
		case w.Field == "":
			w.Field = field
		case strings.HasPrefix(w.Field, "["):
			w.Field = field + w.Field
		default:
			w.Field = field + "." + w.Field
		}
		*f = append(*f, w)
	}
}

// Findings collects what is wrong with a submission, field by field.
type Findings []store.FieldError

// Names says whether something is wrong with the field already.
func (f *Findings) Names(field string) bool {
	return slices.ContainsFunc(*f, func(e store.FieldError) bool { return e.Field == field })
}

func (f *Findings) Add(field, format string, args ...any) {
	*f = append(*f, store.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}
