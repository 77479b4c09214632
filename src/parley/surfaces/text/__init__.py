"""What a reply looks like where people read it: Markdown as safe HTML, and long text in parts."""
