echo "namd $1"
echo "namd $1" > "namd.$1.out"
