package sqlstore

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// An itemList is a list of expected references and topics.
type itemList interface {
	// pages calls look for one page of the list after the other, at most compareRefs items each.
	pages(look func(page []store.RefTopic) error) error
	// unlisted returns the items that are not in the list.
	unlisted(items []store.RefTopic) ([]store.RefTopic, error)
}

// givenItems is a list in memory, without duplicates. has contains its items.
type givenItems struct {
	all []store.RefTopic
	has map[store.RefTopic]bool
}

func newGivenItems(items []store.RefTopic) *givenItems {
	l := &givenItems{has: make(map[store.RefTopic]bool, len(items))}
	for _, item := range items {
		if !l.has[item] {
			l.has[item] = true
			l.all = append(l.all, item)
		}
	}
	return l
}

func (l *givenItems) pages(look func(page []store.RefTopic) error) error {
	for page := range slices.Chunk(l.all, compareRefs) {
		if err := look(page); err != nil {
			return err
		}
	}
	return nil
}

func (l *givenItems) unlisted(items []store.RefTopic) (rest []store.RefTopic, _ error) {
	for _, item := range items {
		if !l.has[item] {
			rest = append(rest, item)
		}
	}
	return rest, nil
}

// expectedItems is the stored list of a project and day.
type expectedItems struct {
	read         sqldb.Read
	project, day string
}

var refTopicColumns = sqldb.Named[store.RefTopic](`ref topic`)

func (l *expectedItems) pages(look func(page []store.RefTopic) error) error {
	var after store.RefTopic
	for {
		page, err := sqldb.Select(l.read, refTopicColumns, `FROM expected_items
			WHERE project = $1 AND day = $2 AND (ref, topic) > ($3, $4)
			ORDER BY ref, topic LIMIT $5`, l.project, l.day, after.Ref, after.Topic, compareRefs)
		if err != nil {
			return err
		}
		if err := look(page); err != nil || len(page) < compareRefs {
			return err
		}
		after = page[len(page)-1]
	}
}

func (l *expectedItems) unlisted(items []store.RefTopic) (rest []store.RefTopic, _ error) {
	columns := func(i *store.RefTopic) sqldb.Columns {
		return sqldb.Columns{col("i.ref", &i.Ref), col("i.topic", &i.Topic)}
	}
	for page := range slices.Chunk(items, compareRefs) {
		found, err := sqldb.Select(l.read, columns, `FROM $i WHERE NOT EXISTS (
				SELECT 1 FROM expected_items AS e
				WHERE e.project = $1 AND e.day = $2 AND e.ref = i.ref AND e.topic = i.topic)`,
			l.project, l.day, sqldb.Rows(page, refTopicColumns))
		if err != nil {
			return nil, err
		}
		rest = append(rest, found...)
	}
	return rest, nil
}

// CompareItems compares a list of references and topics with the callbacks that were accepted in the span. It
// returns up to most items of each kind.
func (db *DB) CompareItems(ctx context.Context, project string, from, to int64, items []store.RefTopic,
	most int) (store.ItemComparison, error) {
	c := itemComparer{db: db, read: db.read(ctx, "compare items"), project: project, from: from, to: to,
		until: to, most: most}
	return c.compare(newGivenItems(items))
}

// maxExtra bounds the extra items that a comparison counts, and so its memory.
const maxExtra = 1_000_000

// An itemComparer compares a list with the callbacks of a span. It reads each callback of the span once, in
// windows, so its time grows with their number, also if many callbacks have one reference. It keeps a hash of
// each listed and extra item that it has seen, not the item.
type itemComparer struct {
	db       *DB
	read     sqldb.Read
	project  string
	from, to int64
	// until is the end of the search for listed items, to that of the search for extra ones.
	until int64
	most  int

	result store.ItemComparison
	// kept are the items of each kind.
	kept map[store.ItemKind][]store.ReconcileItem
	seed maphash.Seed
	// found are the callbacks of listed items, and extra the items that are not listed, by hash.
	found map[uint64]itemCounts
	extra map[uint64]bool
}

func (c *itemComparer) compare(list itemList) (store.ItemComparison, error) {
	c.kept, c.seed = make(map[store.ItemKind][]store.ReconcileItem), maphash.MakeSeed()
	c.found, c.extra = make(map[uint64]itemCounts), make(map[uint64]bool)
	err := c.db.inWindows(c.read, c.project, c.from, c.to, func(after, end string) error {
		return c.scan(list, after, end)
	})
	if err == nil {
		err = list.pages(c.judge)
	}
	if err != nil {
		return store.ItemComparison{}, err
	}
	for _, kind := range store.ItemKinds {
		c.result.Items = append(c.result.Items, c.kept[kind]...)
	}
	return c.result, nil
}

// keep counts an item, and keeps it unless there are enough of its kind.
func (c *itemComparer) keep(count *int64, item store.ReconcileItem) {
	*count++
	if kept := c.kept[item.Kind]; len(kept) < c.most {
		c.kept[item.Kind] = append(kept, item)
	}
}

// itemCounts counts the callbacks of one item. first is the id of the first.
type itemCounts struct {
	callbacks, succeeded, open, dead int64
	first                            string
}

// state returns the best state of the callbacks.
func (n *itemCounts) state() store.State {
	switch {
	case n.succeeded > 0:
		return store.Succeeded
	case n.open > 0:
		return store.Scheduled
	case n.dead > 0:
		return store.Dead
	}
	return store.Canceled
}

// A foundItem is an item with its callbacks. Rows of requests without a callback were lost. They are in first
// alone.
type foundItem struct {
	store.RefTopic
	itemCounts
}

func foundItemColumns(f *foundItem) sqldb.Columns {
	count := func(what string) string { return "SUM(CASE WHEN " + what + " THEN 1 ELSE 0 END)" }
	return sqldb.Columns{
		col("requests.ref", &f.Ref), col("requests.topic", &f.Topic),
		col("COUNT(callbacks.id)", &f.callbacks),
		col(count("callbacks.state = 'succeeded'"), &f.succeeded),
		col(count("callbacks.state = 'scheduled'"), &f.open),
		col(count("callbacks.state = 'dead'"), &f.dead), col("MIN(requests.id) AS first", &f.first),
	}
}

// scan reads the callbacks of one window of the span. Listed ones are counted in found. The others are extra,
// except messages of the program itself.
func (c *itemComparer) scan(list itemList, after, end string) error {
	rows, err := sqldb.Select(c.read, foundItemColumns, `FROM requests
		LEFT JOIN callbacks ON callbacks.id = requests.id
		WHERE requests.project = $1 AND requests.id > $2 AND requests.id <= $3 AND requests.ref <> ''
		GROUP BY requests.ref, requests.topic ORDER BY first`, c.project, after, end)
	if err != nil {
		return err
	}
	items := make([]store.RefTopic, len(rows))
	for i := range rows {
		items[i] = rows[i].RefTopic
	}
	unlisted, err := list.unlisted(items)
	if err != nil {
		return err
	}
	rest := make(map[store.RefTopic]bool, len(unlisted))
	for _, item := range unlisted {
		rest[item] = true
	}
	for i := range rows {
		f := &rows[i]
		hash := maphash.Comparable(c.seed, f.RefTopic)
		switch {
		case !rest[f.RefTopic]:
			c.count(f)
		case strings.HasPrefix(f.Topic, store.OwnTopics), c.extra[hash], len(c.extra) == maxExtra:
		default:
			c.extra[hash] = true
			c.keep(&c.result.Extra, store.ReconcileItem{Kind: store.ItemExtra, RefTopic: f.RefTopic,
				CallbackID: f.first})
		}
	}
	return nil
}

// count adds the callbacks of a listed item.
func (c *itemComparer) count(f *foundItem) {
	if f.callbacks == 0 {
		return
	}
	hash := maphash.Comparable(c.seed, f.RefTopic)
	n, known := c.found[hash]
	if !known {
		n.first = f.first
	}
	n.callbacks, n.succeeded = n.callbacks+f.callbacks, n.succeeded+f.succeeded
	n.open, n.dead = n.open+f.open, n.dead+f.dead
	c.found[hash] = n
}

// addLate counts the callbacks of items that were listed after the scan had read their callbacks. The scan
// has counted these items as extra.
func (c *itemComparer) addLate(page []store.RefTopic) error {
	late := make(map[store.RefTopic]bool)
	for _, item := range page {
		if hash := maphash.Comparable(c.seed, item); c.extra[hash] {
			delete(c.extra, hash)
			delete(c.found, hash)
			late[item] = true
		}
	}
	if len(late) == 0 {
		return nil
	}
	c.result.Extra -= int64(len(late))
	c.kept[store.ItemExtra] = slices.DeleteFunc(c.kept[store.ItemExtra],
		func(i store.ReconcileItem) bool { return late[i.RefTopic] })
	return c.lookUp(slices.Collect(maps.Keys(late)), c.from, c.to)
}

// lookUp counts the callbacks of one page of the list in a span, by the index requests_ref. It reads the
// callbacks of each reference once for the page.
func (c *itemComparer) lookUp(page []store.RefTopic, from, to int64) error {
	listed, refs := make(map[store.RefTopic]bool, len(page)), make(map[string]bool, len(page))
	for _, item := range page {
		listed[item], refs[item.Ref] = true, true
	}
	rows, err := sqldb.Select(c.read, foundItemColumns, `FROM $i CROSS JOIN requests CROSS JOIN callbacks
		WHERE requests.project = $1 AND requests.ref = i.ref AND requests.ref <> ''
			AND requests.id > $2 AND requests.id < $3 AND callbacks.id = requests.id
		GROUP BY requests.ref, requests.topic`, c.project, idsFrom(from), idsFrom(to),
		sqldb.Texts("ref", sortedKeys(refs)))
	for i := range rows {
		if f := &rows[i]; listed[f.RefTopic] {
			c.count(f)
		}
	}
	return err
}

// judge decides what became of the items of one page of the list.
func (c *itemComparer) judge(page []store.RefTopic) error {
	if err := c.addLate(page); err != nil {
		return err
	}
	if len(page) > 0 && c.until > c.to {
		if err := c.lookUp(page, c.to, c.until); err != nil {
			return err
		}
	}
	for _, listed := range page {
		c.result.Listed++
		n, found := c.found[maphash.Comparable(c.seed, listed)]
		if !found {
			c.keep(&c.result.Missing, store.ReconcileItem{Kind: store.ItemMissing, RefTopic: listed})
			continue
		}
		c.result.Matched++
		item := store.ReconcileItem{RefTopic: listed, State: n.state(), CallbackID: n.first,
			Callbacks: n.callbacks}
		if item.State != store.Succeeded {
			item.Kind = store.ItemUnfinished
			c.keep(&c.result.Unfinished, item)
		}
		if n.callbacks > 1 {
			item.Kind = store.ItemDuplicate
			c.keep(&c.result.Duplicates, item)
		}
	}
	return nil
}
