package storetest

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// assign sets fields of a row. Each word is path=value, or a path of a field that becomes true.
func (s *script) assign(row reflect.Value, words []string) {
	for _, word := range words {
		path, value, has := strings.Cut(word, "=")
		if !has {
			value = "true"
		}
		v, ok := row, true
		for part := range strings.SplitSeq(path, ".") {
			v, ok = field(v, part)
			if !ok {
				s.require(false, "%s has no field %s", row.Type(), path)
			}
		}
		s.set(v, value)
	}
}

// field finds a field of a row, of its embedded structs, or of its field Callback. Upper and lower case are
// equal.
func field(v reflect.Value, name string) (reflect.Value, bool) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return v, false
	}
	for i := range v.NumField() {
		if strings.EqualFold(v.Type().Field(i).Name, name) {
			return v.Field(i), true
		}
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Anonymous || f.Name == "Callback" {
			if found, ok := field(v.Field(i), name); ok {
				return found, true
			}
		}
	}
	return v, false
}

// set parses a word as a value of v's type.
func (s *script) set(v reflect.Value, word string) {
	word = s.known(word)
	switch to := v.Addr().Interface().(type) {
	case *time.Duration:
		*to = must(time.ParseDuration(word))
		return
	case *store.RefTopic:
		to.Ref, to.Topic, _ = strings.Cut(word, ":")
		return
	case *store.Span:
		*to = store.Span(must(time.ParseDuration(word)))
		return
	case *store.Rate:
		*to = (store.Rate{})
		if word != "" {
			*to = must(store.ParseRate(word))
		}
		return
	case **time.Location:
		*to = must(time.LoadLocation(word))
		return
	case *[]byte:
		*to = nil
		if word != "nil" {
			*to = []byte(word)
		}
		return
	case *[]store.Header:
		*to = nil
		for _, part := range parts(word) {
			name, value, _ := strings.Cut(part, ":")
			h := store.Header{Name: name, Value: value}
			if sealed, ok := strings.CutPrefix(value, "sealed:"); ok {
				h = store.SealedHeader(name, sealed)
			}
			*to = append(*to, h)
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(word)
	case reflect.Bool:
		v.SetBool(must(strconv.ParseBool(word)))
	case reflect.Int64:
		v.SetInt(s.time(word))
	case reflect.Int:
		v.SetInt(must(strconv.ParseInt(word, 10, 64)))
	case reflect.Float64:
		v.SetFloat(must(strconv.ParseFloat(word, 64)))
	case reflect.Pointer:
		v.SetZero()
		if word != "nil" {
			v.Set(reflect.New(v.Type().Elem()))
			s.set(v.Elem(), word)
		}
	case reflect.Map:
		v.SetZero()
		for _, part := range parts(word) {
			if v.IsNil() {
				v.Set(reflect.MakeMap(v.Type()))
			}
			key, value, _ := strings.Cut(part, ":")
			element := reflect.New(v.Type().Elem()).Elem()
			s.set(element, value)
			v.SetMapIndex(reflect.ValueOf(s.known(key)), element)
		}
	case reflect.Slice:
		v.SetZero()
		for _, part := range parts(word) {
			element := reflect.New(v.Type().Elem()).Elem()
			s.set(element, part)
			v.Set(reflect.Append(v, element))
		}
	default:
		s.require(false, "set: unsupported type %s", v.Type())
	}
}

// known replaces @NAME at the end of a word with the id of that name.
func (s *script) known(word string) string {
	for name, id := range s.ids {
		if word == "@"+name || strings.HasSuffix(word, "_@"+name) {
			return strings.TrimSuffix(word, "@"+name) + id
		}
	}
	return word
}

// parts splits a word at commas.
func parts(word string) []string {
	if word == "" {
		return nil
	}
	return strings.Split(word, ",")
}

// time parses a number, a time relative to the script's clock, or the id of a lane as laneOr prints it.
func (s *script) time(word string) int64 {
	switch {
	case word[0] == '#':
		for id, printed := range s.lanes {
			if word == fmt.Sprint("#", printed) {
				return id
			}
		}
	case word == "forever":
		return store.Forever
	case word == "now":
		return s.now
	case strings.ContainsAny(word[:1], "+-") && !strings.ContainsAny(word[len(word)-1:], "0123456789"):
		return s.now + must(time.ParseDuration(word)).Milliseconds()
	}
	return must(strconv.ParseInt(word, 10, 64))
}

// isTracked reports whether only the changed fields of a row are printed.
func isTracked(row reflect.Value) bool {
	switch row.Interface().(type) {
	case store.Callback, store.Stamped, store.Attempt, store.Endpoint, store.Schedule, store.Alert,
		store.Lane, store.Project, store.PollDetail, store.Redrive:
		return true
	}
	return false
}

// print returns the text of a result, one line for each row.
func (s *script) print(answer any) (lines []string) {
	name, v := "", reflect.ValueOf(answer)
	if n, ok := answer.(answerOf); ok {
		name, v = n.name, reflect.ValueOf(n.value)
	}
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch x := answer.(type) {
	case string:
		return []string{cmp.Or(s.nameIDs(x), `""`)}
	case error:
		return []string{"error: " + sentinel(x)}
	}
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8 {
		for i := range v.Len() {
			lines = append(lines, s.print(v.Index(i).Interface())...)
		}
		if len(lines) == 0 {
			lines = []string{"none"}
		}
		return lines
	}
	if v.Kind() == reflect.Pointer {
		return []string{"none"}
	}
	if v.Kind() != reflect.Struct {
		return []string{cmp.Or(s.value(v, false), "none")}
	}
	if name == "" {
		name = s.rowName(v)
	}
	nothing := "zero"
	if isTracked(v) {
		nothing = "same"
	}
	return []string{strings.TrimPrefix(name+": "+cmp.Or(strings.TrimSpace(s.row(v)), nothing), ": ")}
}

// rowName returns the name of a row: its id by name, its key, or its name field.
func (s *script) rowName(v reflect.Value) string {
	for _, of := range []string{"ID", "CallbackID", "EndpointID", "Callback", "Endpoint", "Key", "Name",
		"Redrive"} {
		f := v.FieldByName(of)
		switch {
		case !f.IsValid():
		case f.Kind() == reflect.Struct:
			return s.rowName(f)
		case f.Kind() == reflect.String && f.String() != "":
			name := s.nameIDs(f.String())
			if number := v.FieldByName("Number"); of == "CallbackID" && number.IsValid() {
				name += "#" + fmt.Sprint(number.Int())
			}
			return name
		}
	}
	return ""
}

// row returns the fields of a row that are not zero, or for a tracked row, the fields that changed.
func (s *script) row(v reflect.Value) string {
	flat := make(map[string]string)
	var order, rows []string
	s.flatten(v, "", func(path string, f reflect.Value) {
		if isTracked(f) && path != "" {
			if text := s.row(f); text != "" {
				rows = append(rows, text)
			}
			return
		}
		if raw := s.value(f, true); raw != "" {
			flat[path] = raw
			order = append(order, strings.TrimSuffix(path+"="+s.laneOr(path, f), "=true"))
		}
	})
	if !isTracked(v) {
		return strings.Join(append(order, rows...), " ")
	}
	key := v.Type().Name() + " " + s.rowKey(v)
	before, known := s.printed[key]
	base, ok := s.printed["Callback "+s.rowKey(v)]
	if ok && v.Type() == reflect.TypeFor[store.Stamped]() && before["state"] == "" {
		base = maps.Clone(base)
		maps.Copy(base, before)
		before, known = base, false // the first stamp does not print the fields that a Stamped leaves out
	}
	s.printed[key] = flat
	var changed []string
	for _, part := range order {
		path, _, _ := strings.Cut(part, "=")
		if path != "version" && before[path] != flat[path] {
			changed = append(changed, part)
		}
	}
	if known {
		for _, path := range slices.Sorted(maps.Keys(before)) {
			if flat[path] == "" {
				changed = append(changed, path+"=")
			}
		}
	}
	if version := v.FieldByName("Version"); version.IsValid() && version.Kind() == reflect.Int64 {
		switch last := s.versions[key]; {
		case version.Int() > last && known:
			changed = append(changed, "newer")
		case version.Int() < last:
			changed = append(changed, "older")
		}
		s.versions[key] = version.Int()
	}
	return strings.Join(append(changed, rows...), " ")
}

// laneOr returns the value of a field. Lane ids depend on the store, so it replaces them with numbers in the
// order of their first appearance.
func (s *script) laneOr(path string, f reflect.Value) string {
	if !strings.HasSuffix(path, "laneid") {
		return s.value(f, false)
	}
	if s.lanes[f.Int()] == 0 {
		s.lanes[f.Int()] = len(s.lanes) + 1
	}
	return fmt.Sprint("#", s.lanes[f.Int()])
}

func (s *script) rowKey(v reflect.Value) string {
	if v.Type() == reflect.TypeFor[store.Lane]() {
		return v.FieldByName("Project").String() + " " + v.FieldByName("Key").String()
	}
	key := idOf([]reflect.Value{v})
	if key == "" {
		key = s.rowName(v)
	}
	return key
}

// flat returns the fields of a row that are not zero, by path.
func (s *script) flat(row any) map[string]string {
	flat := make(map[string]string)
	s.flatten(reflect.ValueOf(row), "", func(path string, f reflect.Value) {
		if raw := s.value(f, true); raw != "" {
			flat[path] = raw
		}
	})
	return flat
}

// flatten calls visit for each field of a row, and of its structs. Tracked rows are visited as a whole. Zero
// fields and ids are left out.
func (s *script) flatten(v reflect.Value, prefix string, visit func(path string, f reflect.Value)) {
	for i := range v.NumField() {
		f, name := v.Field(i), strings.ToLower(v.Type().Field(i).Name)
		if v.Type().Field(i).Anonymous {
			s.flatten(f, prefix, visit)
			continue
		}
		path := prefix + name
		given := f.Kind() == reflect.Pointer && !f.IsNil()
		if given {
			f = f.Elem()
		}
		_, rate := f.Interface().(store.Rate)
		switch {
		case slices.Contains([]string{"id", "callbackid"}, path) || path == "cursor" && !given ||
			f.IsZero() && !given:
		case f.Kind() == reflect.Slice && f.Len() == 0 && (f.IsNil() || path != "body"):
		case !given && f.Type() == reflect.TypeFor[store.OutcomeCursor](),
			f.Type() == reflect.TypeFor[store.Cursor]():
		case path == "project" && f.String() == project:
		case isTracked(f) || f.Kind() != reflect.Struct || rate:
			visit(path, f)
		default:
			s.flatten(f, path+".", visit)
		}
	}
}

var anyID = regexp.MustCompile(`[0-7][0-9A-HJKMNP-TV-Z]{25}`)

// nameIDs replaces the ids in a text with their names. An unknown id gets a new name.
func (s *script) nameIDs(text string) string {
	return anyID.ReplaceAllStringFunc(text, func(id string) string {
		if s.names[id] == "" {
			s.name(fmt.Sprint("id", len(s.names)+1), id)
		}
		return s.names[id]
	})
}

// value returns the text of a value. A raw text does not depend on the clock or on earlier results.
func (s *script) value(v reflect.Value, raw bool) string {
	switch x := v.Interface().(type) {
	case time.Duration, store.Rate:
		return fmt.Sprint(x)
	case store.Span:
		return fmt.Sprint(time.Duration(x))
	case []byte:
		if len(x) > 10_000 {
			return fmt.Sprintf("%d bytes, CRC-32 %08x", len(x), crc32.ChecksumIEEE(x))
		}
		return s.quote(s.nameIDs(string(x)))
	case []store.Header:
		return s.quote(strings.Join(each(x, func(h store.Header) string {
			if sealed := h.Sealed(); sealed != "" {
				return h.Name + ":sealed:" + sealed
			}
			return h.Name + ":" + h.Value
		}), ","))
	case []store.OpenRow:
		return joined(s, slices.Sorted(slices.Values(rowIDs(x))))
	case error:
		return sentinel(x)
	}
	switch v.Kind() {
	case reflect.String:
		return s.quote(s.nameIDs(v.String()))
	case reflect.Int64:
		return s.number(v.Int(), raw)
	case reflect.Slice, reflect.Array:
		var all []string
		for i := range v.Len() {
			if row := v.Index(i); row.Kind() == reflect.Struct {
				text := fmt.Sprint(row.Interface())
				if !raw { // row records what was printed, so only the printed text may call it
					text = strings.TrimSpace(s.rowName(row) + " " + s.row(row))
				}
				all = append(all, "{"+text+"}")
				continue
			}
			all = append(all, s.value(v.Index(i), raw))
		}
		return strings.Join(all, ",")
	case reflect.Map:
		var all []string
		for _, key := range v.MapKeys() {
			value := s.value(v.MapIndex(key), raw)
			if v.MapIndex(key).Kind() == reflect.Struct {
				value = "{" + s.rowName(v.MapIndex(key)) + "}"
			}
			all = append(all, s.nameIDs(fmt.Sprint(key))+":"+value)
		}
		slices.Sort(all)
		return strings.Join(all, ",")
	case reflect.Struct:
		return "{" + s.row(v) + "}"
	}
	return fmt.Sprint(v.Interface())
}

// quote quotes a text unless it is one word.
func (s *script) quote(text string) string {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return strconv.Quote(text)
	}
	return text
}

// number returns the text of a number. Times are relative to the script's clock, unless raw.
func (s *script) number(n int64, raw bool) string {
	switch {
	case n == store.Forever:
		return "forever"
	case raw || n < start-1000*day || n > start+1000*day:
		return fmt.Sprint(n)
	case n == s.now:
		return "now"
	}
	d := time.Duration(n-s.now) * time.Millisecond
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = strings.TrimSuffix(text, zero[1:])
		}
	}
	if d > 0 {
		text = "+" + text
	}
	return text
}
