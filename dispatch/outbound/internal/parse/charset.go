package parse

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/simplifiedchinese"
)

// byteOrderMark is the mark that some programs write before UTF-8.
const byteOrderMark = "\xef\xbb\xbf"

// UTF8 returns a body as UTF-8 without byte order mark. The content type declares the encoding, else an XML
// declaration.
//
// It decodes the Chinese national encodings (GB18030, which contains GBK and GB2312). Bytes in any other
// encoding stay unchanged, because most texts that rules look for are ASCII. ok is false if the bytes do not
// match the declared encoding; then text is only good for display.
func UTF8(contentType string, body []byte) (text []byte, ok bool) {
	if rest, marked := bytes.CutPrefix(body, []byte(byteOrderMark)); marked {
		return rest, true
	}
	if IsASCII(body) {
		return body, true
	}
	name := charsetParameter(contentType)
	if name == "" {
		name = DeclaredEncoding(body)
	}
	switch strings.ToLower(name) {
	case "gbk", "gb2312", "gb18030", "cp936", "x-gbk":
	default:
		return body, true
	}
	text, err := simplifiedchinese.GB18030.NewDecoder().Bytes(body)
	switch {
	case err == nil && !bytes.ContainsRune(text, utf8.RuneError):
		return text, true
	case utf8.Valid(body):
		return body, true // the declaration is wrong, but the bytes are valid UTF-8
	case err != nil:
		return body, false
	}
	return text, false
}

// IsASCII reports whether all bytes are ASCII.
func IsASCII(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// charsetParameter returns the charset of a content type, or "". It is more tolerant than package mime,
// because many receivers send malformed content types.
func charsetParameter(contentType string) string {
	for part := range strings.SplitSeq(contentType, ";") {
		name, value, ok := strings.Cut(part, "=")
		if ok && strings.EqualFold(strings.TrimSpace(name), "charset") {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}

// maxXMLDeclaration is the maximum length of an XML declaration in bytes.
const maxXMLDeclaration = 200

// DeclaredEncoding returns the encoding that an XML declaration names, or "".
func DeclaredEncoding(body []byte) string {
	if !bytes.HasPrefix(body, []byte("<?xml")) {
		return ""
	}
	declaration, _, ok := bytes.Cut(body[:min(len(body), maxXMLDeclaration)], []byte("?>"))
	if !ok {
		return ""
	}
	_, after, ok := strings.Cut(string(declaration), "encoding")
	if !ok {
		return ""
	}
	after, ok = strings.CutPrefix(strings.TrimSpace(after), "=")
	if !ok {
		return ""
	}
	name := strings.TrimSpace(after)
	if name == "" || name[0] != '"' && name[0] != '\'' {
		return ""
	}
	name, _, _ = strings.Cut(name[1:], name[:1])
	return name
}
